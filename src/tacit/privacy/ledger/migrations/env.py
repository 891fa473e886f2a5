"""Run a migration on the connection that the ledger hands over, in the ledger's own transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=False)
context.run_migrations()
