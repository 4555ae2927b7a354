//! Writes outputs until it is killed: the child process of a test.
//!
//! Arguments: the path of the database, and the number of the first output.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

use std::io::Read;
use std::path::Path;

use pegboard_core::store::OutputStore;
use pegboard_stores::sqlite::Database;

use numbered_outputs::{N_WRITES, at, child_body, output, output_handle};

#[path = "../tests/it/numbered_outputs.rs"]
mod numbered_outputs;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let database = Database::open(Path::new(&arguments[0])).unwrap();
    let first: usize = arguments[1].parse().unwrap();
    for number in first..first + N_WRITES {
        OutputStore::put(&database, output_handle(number), output(child_body(number)), at(0)).await.unwrap();
        println!("written {number}");
    }
    // A fast child waits to be killed, or for its parent to exit.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
