//! Runs the `console` blocks of README and docs/ and compares their output.
//!
//! The pages of `tests/cli`, with the output of every command, are checked the same way.
//! `PEGBOARD_GUIDE=overwrite cargo test -p pegboard --test guide` writes the actual output to the pages; review the
//! diff before you commit it.

#![cfg(unix)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use page::Page;

mod cast;
mod compare;
mod links;
mod page;
mod session;

/// Root directory of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("it is two folders below the root").to_owned()
}

/// Pages of a directory, sorted.
fn pages_of(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let files = files.map(|file| file.expect("the folder can be read").path());
    let pages: BTreeSet<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.into_iter().collect()
}

/// README and the pages of docs/.
fn guide() -> Vec<PathBuf> {
    [vec![root().join("README.md")], pages_of(&root().join("docs"))].concat()
}

/// Runs pages in parallel and returns the differences.
#[expect(clippy::disallowed_methods, reason = "a test has an environment of its own")]
fn follow(pages: &[PathBuf]) -> Vec<String> {
    let left = Mutex::new(pages.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("nobody panics with it").next();
                    let Some(path) = next else { break };
                    let page = Page::read(path);
                    let seen = session::follow(&page);
                    if std::env::var_os("PEGBOARD_GUIDE").is_some_and(|what| what == "overwrite") {
                        std::fs::write(path, page.with(&seen)).expect("the page can be written");
                    } else {
                        wrong.lock().expect("nobody panics with it").extend(page.differences(&seen));
                    }
                }
            });
        }
    });
    wrong.into_inner().expect("nobody panics with it")
}

#[test]
fn console_blocks_of_the_guide_match() {
    let wrong = follow(&guide());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn command_output_matches_the_pages() {
    let pages = pages_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli"));
    let wrong = follow(&pages);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_of_the_guide_are_valid() {
    let map = root().join("llms.txt");
    let pages = guide().into_iter().chain(map.exists().then_some(map));
    let broken: Vec<String> = pages.flat_map(|page| links::broken(&page)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
