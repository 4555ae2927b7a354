//! The testkit as a program.

use std::process::ExitCode;

fn main() -> ExitCode {
    pegboard_testkit::cli::main()
}
