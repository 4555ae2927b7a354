//! The testkit, built with the tests that start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    pegboard_testkit::cli::main()
}
