//! What `#[tool]` says to a person who has made a mistake.
//!
//! After changing a message: `TRYBUILD=overwrite cargo test -p pegboard --test macro_errors`, then read the diff.

#[test]
fn every_mistake_is_explained_where_it_was_made() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
