//! Full-text search over tools.

use std::sync::Arc;

use pegboard_core::entry::ToolEntry;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::{ServerOffering, ToolKind};
use pegboard_runtime::catalogue::{ServerListing, Snapshot, ToolboxScope};
use pegboard_runtime::drain::DrainCounter;
use pegboard_runtime::names::DEFAULT_LIMIT;
use pegboard_runtime::search::{MAX_HITS, SearchQuery};
use serde_json::{Value, json};

fn entry(name: &str, description: &str) -> ToolEntry {
    ToolEntry::from_fn(name, description, |value: Value| async move { Ok(value) })
}

fn listing(toolbox: &str, server: &str, tools: impl IntoIterator<Item = ToolEntry>) -> ServerListing {
    ServerListing {
        toolbox: ToolboxName::new(toolbox).unwrap(),
        server: ServerName::new(server).unwrap(),
        kind: ToolKind::Mcp,
        settings: Arc::default(),
        offer: Arc::new(ServerOffering {
            tools: tools.into_iter().map(Arc::new).collect(),
            ..ServerOffering::default()
        }),
        is_known: true,
        drain_counter: DrainCounter::default(),
    }
}

/// A snapshot of some typical servers.
fn snapshot() -> Snapshot {
    let listings = [
        listing(
            "dev",
            "github",
            [
                entry("list_issues", "List issues of a repository, with comments and labels").tag("read"),
                entry("create_branch", "Create a new branch in a repository"),
                entry("createIssue", "Open a new issue").tag("write"),
                entry("add_issue_comment", "Add a comment to an issue that somebody else has to create")
                    .tag("write"),
                entry("search_code", "Find code in all repositories"),
            ],
        ),
        listing("dev", "gitlab", [entry("issues.create", "Opens one").tag("write").tag("Beta")]),
        listing("dev", "tracker", [entry("create_issue", "A new ticket for the team")]),
        listing(
            "work",
            "filesystem",
            [
                entry("read_file", "The whole text of a file"),
                entry("write_file", "Put text into a file, and read nothing"),
                entry("list_directory", "The files in a directory").with_title("Show folder"),
                entry("getHTTPHeaders2", "Ask a web server")
                    .with_input_schema(json!({"properties": {"followRedirects": {}}})),
            ],
        ),
    ];
    Snapshot::build(&listings, DEFAULT_LIMIT)
}

fn names<'s>(snapshot: &'s Snapshot, query: &SearchQuery<'_>) -> Vec<&'s str> {
    snapshot.search(query).into_iter().map(|hit| hit.tool.id.name.as_str()).collect()
}

#[test]
fn the_best_match_comes_first() {
    let snapshot = snapshot();
    let check = |text: &str, expected: &[&str]| {
        let found = names(&snapshot, &SearchQuery::new(text));
        let first: Vec<&str> = found.iter().copied().take(expected.len()).collect();
        assert_eq!(first, expected, "{text:?} found {found:?}");
    };
    check("file read", &["read_file", "write_file"]);
    check("reading files", &["read_file"]);
    check("files", &["read_file"]);
    check("issue comments", &["add_issue_comment", "list_issues"]);
    check("repositories", &["search_code", "create_branch", "list_issues"]);
    check("folder", &["list_directory"]);
    check("http header", &["getHTTPHeaders2"]);
    check("redirect", &["getHTTPHeaders2"]);
    check("tracker", &["create_issue"]);
    check("search_code", &["search_code"]);
    check("searchcode", &["search_code"]);
    check("CREATEBRANCH", &["create_branch"]);
    check("branch", &["create_branch"]);
}

#[test]
fn a_name_is_found_however_it_is_written() {
    let snapshot = snapshot();
    for text in ["create issue", "create_issue", "createIssues", "issues create"] {
        let mut first = names(&snapshot, &SearchQuery { n_most: 3, ..SearchQuery::new(text) });
        first.sort_unstable();
        assert_eq!(first, ["createIssue", "create_issue", "issues.create"], "{text:?}");
    }
}

#[test]
fn the_last_word_may_be_unfinished() {
    let snapshot = snapshot();
    assert_eq!(names(&snapshot, &SearchQuery::new("direc")), ["list_directory"]);
    assert_eq!(names(&snapshot, &SearchQuery::new("list direc"))[0], "list_directory");
    assert_eq!(names(&snapshot, &SearchQuery::new("direc zzz")), [""; 0]);
    assert_eq!(names(&snapshot, &SearchQuery::new("d")), [""; 0]);
}

#[test]
fn a_search_can_be_filtered() {
    let snapshot = snapshot();
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let (write, both, either) = (tags(&["WRITE"]), tags(&["write", "beta"]), tags(&["read", "beta"]));
    let issue = SearchQuery::new("issue");
    let work = |toolbox: &ToolboxName| toolbox.as_str() == "work";
    let tracker = ServerName::new("tracker").unwrap();
    let mut found = names(&snapshot, &SearchQuery { all_tags: &write, ..issue });
    found.sort_unstable();
    assert_eq!(found, ["add_issue_comment", "createIssue", "issues.create"]);
    assert_eq!(names(&snapshot, &SearchQuery { all_tags: &both, ..issue }), ["issues.create"]);
    assert_eq!(
        names(&snapshot, &SearchQuery { any_tags: &either, ..SearchQuery::new("") }),
        ["list_issues", "issues.create"]
    );
    assert_eq!(names(&snapshot, &SearchQuery { server: Some(&tracker), ..issue }), ["create_issue"]);
    assert_eq!(names(&snapshot, &SearchQuery { scope: ToolboxScope::Only(&work), ..issue }), [""; 0]);
    assert_eq!(
        names(
            &snapshot,
            &SearchQuery { scope: ToolboxScope::Only(&work), n_most: 1, ..SearchQuery::new(" ") }
        ),
        ["read_file"]
    );
}

#[test]
fn ties_are_in_configuration_order() {
    let tools = |from: usize| (from..from + 3).map(|at| entry(&format!("echo{at}"), "Says it again"));
    let snapshot =
        Snapshot::build(&[listing("z", "s", tools(3)), listing("a", "s", tools(0))], DEFAULT_LIMIT);
    assert_eq!(
        names(&snapshot, &SearchQuery::new("says again")),
        ["echo3", "echo4", "echo5", "echo0", "echo1", "echo2"]
    );
    assert_eq!(names(&snapshot, &SearchQuery { n_most: 2, ..SearchQuery::new("echo") }), ["echo3", "echo4"]);
    assert_eq!(names(&snapshot, &SearchQuery { n_most: 0, ..SearchQuery::new("echo") }), [""; 0]);
}

#[test]
fn hostile_queries_and_tools_are_bounded() {
    let many = (0..500).map(|at| entry(&format!("tool_{at}"), "needle"));
    let long = entry("long", &format!("{} needleatend", "é".repeat(5_000)));
    let snapshot = Snapshot::build(&[listing("t", "s", many.chain([long]))], DEFAULT_LIMIT);
    assert_eq!(
        names(&snapshot, &SearchQuery { n_most: usize::MAX, ..SearchQuery::new("needle") }).len(),
        MAX_HITS
    );
    assert_eq!(names(&snapshot, &SearchQuery::new("needleatend")), [""; 0]);
    assert_eq!(names(&snapshot, &SearchQuery::new(&"é".repeat(100_000))).len(), 1);
    assert_eq!(names(&snapshot, &SearchQuery::new(&format!("{}needle", "x ".repeat(300)))), [""; 0]);
    for text in ["!!!", "\u{0}", "🙂", "' OR 1=1", "____"] {
        names(&snapshot, &SearchQuery::new(text));
    }
    assert_eq!(names(&snapshot, &SearchQuery::new("!!!")), [""; 0]);
}
