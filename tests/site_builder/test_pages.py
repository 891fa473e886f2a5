"""The generated pages of the site: learners, API, commands, and links to files of the repository."""

from pathlib import Path

import pytest
import yaml
from site_builder.lists import Lists
from site_builder.repository import ROOT, Repository, everything_linked

from site_builder import learner_pages, notebooks, reference

DOCS = ROOT / "docs"


def navigation() -> set[str]:
    """The pages that mkdocs.yml names."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
    found: set[str] = set()

    def walk(entry: object) -> None:
        if isinstance(entry, str):
            found.add(entry)
        for inside in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            walk(inside)

    walk(yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"])
    return found


def test_every_page_is_in_the_navigation() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    tutorials = {f"tutorials/{file.stem}.md" for file in notebooks.sources()}
    assert pages | tutorials <= navigation()


@pytest.mark.parametrize("name", learner_pages.classes())
def test_every_learner_has_a_page_with_its_guarantee(name: str) -> None:
    learner = learner_pages.classes()[name]
    said = learner_pages.words(learner)
    page = learner_pages.pages()[f"learners/{name}.md"]
    assert len(said.edges) > 40 and said.edges in page
    assert "## Measured" in page and "## Settings" in page


def test_what_is_not_private_is_said_so() -> None:
    for name, page in learner_pages.pages().items():
        if name.endswith(("AGEM.md", "FeCAM.md", "RanPAC.md", "DPL2M.md", "L2DPML.md")) and "DPAGEM" not in name:
            assert '!!! danger "Not private"' in page, name
        if name.endswith(("MomentsClassifier.md", "RoutedExperts.md", "DPCL.md")) and "Published" not in name:
            assert '!!! success "Certified"' in page, name


def test_a_setting_at_the_beginning_of_a_sentence_keeps_its_case() -> None:
    assert 'memory="union" samples' in learner_pages.pages()["learners/DPCL.md"]


def test_a_docstring_without_its_parts_is_refused() -> None:
    class Bare:
        """Only this."""

    with pytest.raises(ValueError, match="no part certified, claim, edges, reference"):
        learner_pages.words(Bare)


def test_every_public_name_is_in_the_api() -> None:
    pages = reference.api_pages()
    for room in reference.rooms():
        for name in reference.exported(reference.PACKAGE / room / "__init__.py"):
            assert f"::: tacit.{room}.{name}" in pages[f"api/{room}.md"]
    assert "| [`Budget`](privacy.md#tacit.privacy.Budget)" in pages["api/index.md"]


def test_every_command_has_its_options() -> None:
    pages = reference.command_pages()
    run = pages["commands/run.md"]
    assert "| `--epsilon` `X` |" in run and "```sh\ntacit run quickstart\n" in run
    assert "`public-proxy|held-tasks|private`" in pages["commands/tune.md"]
    assert "### `tacit ledger officers add`" in pages["commands/ledger.md"]


def test_links_into_the_repository_lead_to_pages_of_the_site() -> None:
    repository = Repository()
    text = "[a](../src/tacit/metrics.py) [b](promise.md#limits) [c](https://x.org) `[d](../README.md)`\n"
    text += "```\n[e](../README.md)\n```"
    made = repository.rewritten(text, "docs/privacy.md")
    assert made.splitlines()[0].startswith(
        "[a](repo/src/tacit/metrics.py.md) [b](promise.md#limits) [c](https://x.org)"
    )
    assert made.endswith("```\n[e](../README.md)\n```")
    assert "src/tacit/metrics.py" in repository.linked
    assert Repository().rewritten("[p](../pictures/report.png)", "docs/how-to/x.md") == "[p](../pictures/report.png)"
    assert Repository().rewritten("[p](docs/promise.md)", "README.md") == "[p](../promise.md)"
    assert Repository().rewritten("[p](../../outside)", "docs/x.md") == "[p](../../outside)"


def test_a_source_is_shown_as_code_and_a_folder_as_a_list() -> None:
    repository = Repository(linked={"src/tacit/gradients", "src/tacit/gradients/clip.py"})
    code = repository.content("src/tacit/gradients/clip.py")
    assert "{ .python linenums" in code and "exclude: true" in code
    folder = repository.content("src/tacit/gradients")
    assert "[`clip.py`](clip.py.md)" in folder and "| `exact.py` |" in folder


def test_files_that_linked_pages_link_to_are_found() -> None:
    repository = Repository()
    everything_linked(repository, [("[a](../ARCHITECTURE.md)", "docs/index.md")])
    assert "CONTRIBUTING.md" in repository.linked and "src/tacit/privacy/vault/exits/grant.py" in repository.linked


def test_a_list_after_a_line_of_text_is_a_list() -> None:
    from markdown import markdown

    made = markdown("text:\n- a\n  more\n- b\n\n| x |\n|---|\n", extensions=[Lists(), "tables"])
    assert made.count("<li>") == 2 and "<p>text:</p>" in made


def test_an_executed_notebook_becomes_a_page() -> None:
    import nbformat

    cells = [
        nbformat.v4.new_markdown_cell("# Title\ntext"),
        nbformat.v4.new_code_cell("1 + 1", outputs=[nbformat.v4.new_output("stream", text="\x1b[31m2\x1b[0m\r\n")]),
    ]
    page = notebooks.page("own", nbformat.v4.new_notebook(cells=cells))
    assert (
        page.startswith("# Title\n\n[Notebook](own.ipynb)") and "\n2\n```" in page and "```python\n1 + 1\n```" in page
    )


@pytest.mark.slow
def test_a_cell_or_a_command_that_fails_fails_the_build(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("# %%\n1 / 0\n", encoding="utf-8")
    with pytest.raises(notebooks.CellError, match=r"a cell of bad\.py failed"):
        notebooks.executed([bad], tmp_path / "cache")
    bad.write_text("# %%\n# !false\n", encoding="utf-8")
    with pytest.raises(notebooks.CellError, match="exit code 1"):
        notebooks.executed([bad], tmp_path / "cache")
    good = tmp_path / "good.py"
    good.write_text('# %% tags=["fails"]\n# !false\n\n# %%\nprint("well")\n', encoding="utf-8")
    made = notebooks.executed([good], tmp_path / "cache")["good"]
    assert made.cells[0].source == "!false" and made.cells[1].outputs[0].text == "well\n"
    assert notebooks.executed([good], tmp_path / "cache")["good"] == made
