//! The guide, held to its word: what README and docs/ show on a console is what happens there.
//!
//! A block that is fenced as `console` is run as it stands, and so are the pages of `tests/cli`, which show what every
//! command says. `PEGBOARD_GUIDE=overwrite cargo test -p pegboard --test guide` writes what was seen into the pages; read
//! it before you commit it.

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

/// The root of the project.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("it is two folders below the root").to_owned()
}

/// The pages of a folder, in order.
fn pages_of(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let files = files.map(|file| file.expect("the folder can be read").path());
    let pages: BTreeSet<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.into_iter().collect()
}

/// The pages that people read.
fn guide() -> Vec<PathBuf> {
    [vec![root().join("README.md")], pages_of(&root().join("docs"))].concat()
}

/// Does what pages show, some at a time, and gives what is not so.
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
fn what_the_guide_shows_on_a_console_happens_there() {
    let wrong = follow(&guide());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_command_says_what_its_page_says() {
    let pages = pages_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli"));
    let wrong = follow(&pages);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_of_the_guide_lead_somewhere() {
    let map = root().join("llms.txt");
    let pages = guide().into_iter().chain(map.exists().then_some(map));
    let broken: Vec<String> = pages.flat_map(|page| links::broken(&page)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
