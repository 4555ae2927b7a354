//! Programs that tests start: examples of the package under test.

use std::path::PathBuf;

/// Returns the path of an example that was built with the running test.
///
/// `cargo test` builds the examples of a package; `cargo test --test NAME` does so with `--examples`.
///
/// # Panics
///
/// If the example has not been built.
pub fn path(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its program");
    let folder = test.ancestors().nth(2).expect("a test is in target/PROFILE/deps");
    let path = folder.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.exists(), "{} does not exist; run `cargo test` with `--examples`", path.display());
    path
}
