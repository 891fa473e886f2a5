"""What all learners share: public facts and a block go in, a release comes out."""
