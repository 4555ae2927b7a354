//! Error messages of `#[tool]`.
//!
//! After changing a message: `TRYBUILD=overwrite cargo test -p pegboard-macros`, then read the diff.

#[test]
fn macro_errors_point_at_the_mistake() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
