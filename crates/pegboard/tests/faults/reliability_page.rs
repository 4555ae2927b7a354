//! The page that says what a client sees of each fault.

use std::collections::BTreeMap;

use pegboard_testkit::hostile::http::HttpFault;
use pegboard_testkit::hostile::stdio::StdioFault;

use crate::case::{Case, Fault, Outcome};

const PAGE: &str = include_str!("../../../../docs/reliability.md");

/// Returns the cells of a table under a heading, by the name in the first column: the last cell of each row.
fn rows(heading: &str) -> BTreeMap<&'static str, &'static str> {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the page has the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    rows.map(|row| (row.split('`').next().unwrap(), row.rsplit(" | ").next().unwrap())).collect()
}

/// Checks that the page says what the client sees of this fault.
pub(crate) fn check(case: &Case) {
    let (heading, name) = match case.fault {
        Fault::Program(mode) => ("Servers over stdio", mode.name()),
        Fault::Address(mode) => ("Servers over HTTP", mode.name()),
    };
    let rows = rows(heading);
    let seen = rows.get(name).unwrap_or_else(|| panic!("docs/reliability.md does not have '{name}'"));
    let expected = match case.outcome {
        Outcome::Text(_) => "the answer".to_owned(),
        Outcome::Error(kind, _) => format!("`{kind}`"),
        Outcome::AnyError(_) => "an error".to_owned(),
    };
    assert!(seen.starts_with(&expected), "docs/reliability.md says '{seen}' instead of '{expected}'");
}

#[test]
fn the_page_has_every_fault_and_no_other() {
    let stdio = StdioFault::ALL.iter().filter(|mode| **mode != StdioFault::Decent).map(|mode| mode.name());
    let http = HttpFault::ALL.iter().filter(|mode| **mode != HttpFault::Decent).map(|mode| mode.name());
    let check = |heading: &str, mut expected: Vec<&str>| {
        expected.sort_unstable();
        assert_eq!(rows(heading).into_keys().collect::<Vec<_>>(), expected, "{heading}");
    };
    check("Servers over stdio", stdio.collect());
    check("Servers over HTTP", http.collect());
}

/// Every fault has a case: its mode is named in the source of the cases.
#[test]
fn every_fault_is_a_case() {
    let cases =
        [include_str!("programs.rs"), include_str!("addresses.rs"), include_str!("killed.rs")].concat();
    let is_missing = |fault: &String| !cases.contains(fault.as_str());
    let stdio = StdioFault::ALL.iter().filter(|mode| **mode != StdioFault::Decent);
    let http = HttpFault::ALL.iter().filter(|mode| **mode != HttpFault::Decent);
    let stdio = stdio.map(|mode| format!("StdioFault::{mode:?}"));
    let missing: Vec<_> =
        stdio.chain(http.map(|mode| format!("HttpFault::{mode:?}"))).filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
