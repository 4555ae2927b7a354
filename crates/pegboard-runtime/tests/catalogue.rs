//! Which tools there are, and how one is found.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::sync::Arc;

use insta::assert_snapshot;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{ErrorKind, Executed};
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::provider::{Offer, ToolKind};
use pegboard_core::settings::ServerSettings;
use pegboard_runtime::catalogue::{Catalogue, Form, OutputSchemas, Scope, Shelf, Snapshot, Tool, View};
use pegboard_runtime::names::DEFAULT_LIMIT;
use pegboard_runtime::usage::Usage;
use serde_json::{Value, json};

fn toolbox(name: &str) -> ToolboxName {
    ToolboxName::new(name).unwrap()
}

fn id(toolbox: &str, server: &str, name: &str) -> ToolId {
    ToolId {
        toolbox: ToolboxName::new(toolbox).unwrap(),
        server: ServerName::new(server).unwrap(),
        name: ToolName::new(name).unwrap(),
    }
}

fn entry(name: &str) -> ToolEntry {
    ToolEntry::from_fn(name, format!("The tool {name}"), |value: Value| async move { Ok(value) })
}

/// The shelf of a server, written `toolbox/server`.
fn shelf(place: &str, tools: &[&str]) -> Shelf {
    let (toolbox, server) = place.split_once('/').unwrap();
    Shelf {
        toolbox: ToolboxName::new(toolbox).unwrap(),
        server: ServerName::new(server).unwrap(),
        kind: ToolKind::Mcp,
        settings: Arc::default(),
        offer: Arc::new(Offer {
            tools: tools.iter().map(|name| Arc::new(entry(name))).collect(),
            ..Offer::default()
        }),
        usage: Usage::default(),
    }
}

fn with_settings(shelf: Shelf, settings: Value) -> Shelf {
    Shelf { settings: Arc::new(serde_json::from_value::<ServerSettings>(settings).unwrap()), ..shelf }
}

fn snapshot(shelves: &[Shelf]) -> Snapshot {
    Snapshot::build(shelves, DEFAULT_LIMIT)
}

fn flat_names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.tools().iter().map(|tool| &*tool.flat_name).collect()
}

/// What a text leads to: an id, with `~` before it if it was a correction, or the error.
fn resolved(snapshot: &Snapshot, name: &str) -> String {
    match snapshot.resolve(name, Scope::All, &|_| true) {
        Ok(found) => {
            let mark = if found.corrected_from.as_deref() == Some(name) { "~" } else { "" };
            format!("{mark}{}", found.tool.id)
        }
        Err(error) => {
            assert_eq!((error.kind(), error.executed()), (ErrorKind::UnknownTool, Executed::No));
            error.to_string()
        }
    }
}

#[test]
fn a_text_is_looked_up_in_one_order() {
    let snapshot = snapshot(&[
        with_settings(
            shelf("dev/github", &["search_code", "list.issues"]),
            json!({"tools": {"search_code": {"aliases": ["find", "list.tools"]}}}),
        ),
        shelf("dev/my_files", &["read_file", "é"]),
        shelf("dev/rest", &["ask-netdata"]),
        shelf("dev/agent", &["writer"]),
    ]);
    for (asked, expected) in [
        ("github__search_code", "dev/github/search_code"),
        ("find", "dev/github/search_code"),
        ("list.tools", "dev/github/search_code"),
        ("github_search_code", "dev/github/search_code"),
        ("my_files_read_file", "dev/my_files/read_file"),
        ("<|channel|>github__search_code", "~dev/github/search_code"),
        (" find ", "~dev/github/search_code"),
        ("github__list.issues", "~dev/github/list.issues"),
        ("github.list.issues", "~dev/github/list.issues"),
        ("ask-netdata", "~dev/rest/ask-netdata"),
        ("writer", "~dev/agent/writer"),
        ("agent__writer", "dev/agent/writer"),
        ("my_files.read_file", "~dev/my_files/read_file"),
        ("read_file", "~dev/my_files/read_file"),
        ("list.issues", "~dev/github/list.issues"),
        ("list_issues", "~dev/github/list.issues"),
        ("é", "~dev/my_files/é"),
        ("ü", "Unknown tool: ü"),
        ("", "Unknown tool: "),
        (
            "agent__reader",
            "unknown_subagent_tool: 'agent__reader' is not registered in this session's agent registry",
        ),
        ("zzzz", "Unknown tool: zzzz"),
        ("github__serch_code", "Unknown tool: github__serch_code. Did you mean 'github__search_code'?"),
        ("serch_code", "Unknown tool: serch_code. Did you mean 'github__search_code'?"),
    ] {
        assert_eq!(resolved(&snapshot, asked), expected, "{asked:?}");
    }
}

#[test]
fn a_name_asked_for_may_be_hostile() {
    let snapshot = snapshot(&[shelf("dev/github", &["search"])]);
    for asked in ["x".repeat(1_000_000), "<|".repeat(5_000), "\u{0}é\n".repeat(300), "_".repeat(2_000)] {
        let error = snapshot.resolve(&asked, Scope::All, &|_| true).unwrap_err().to_string();
        assert!(error.len() < 400, "{} bytes", error.len());
    }
}

#[test]
fn a_plain_name_means_the_one_tool_that_takes_the_arguments() {
    let snapshot = snapshot(&[shelf("dev/a", &["search"]), shelf("dev/b", &["search"])]);
    let among = |accepts: fn(&Tool) -> bool| {
        snapshot
            .resolve("search", Scope::All, &accepts)
            .map(|found| found.tool.id.to_string())
            .map_err(|error| error.to_string())
    };
    let both = Err("Unknown tool: search. Did you mean one of: a__search, b__search?".to_owned());
    assert_eq!(among(|tool| tool.id.server.as_str() == "b"), Ok("dev/b/search".to_owned()));
    assert_eq!(among(|_| true), both);
    assert_eq!(among(|_| false), both);
}

#[test]
fn arguments_do_not_decide_between_too_many() {
    let shelves: Vec<Shelf> = (0..65).map(|at| shelf(&format!("dev/s{at}"), &["search"])).collect();
    let asked = |shelves: &[Shelf]| {
        let only_first = |tool: &Tool| tool.id.server.as_str() == "s0";
        snapshot(shelves).resolve("search", Scope::All, &only_first).is_ok()
    };
    assert!(asked(&shelves[..64]));
    assert!(!asked(&shelves));
}

#[test]
fn tools_of_other_toolboxes_do_not_exist() {
    let snapshot = snapshot(&[shelf("dev/github", &["search"]), shelf("prod/github", &["search", "deploy"])]);
    let only = |name: &'static str| move |toolbox: &ToolboxName| toolbox.as_str() == name;
    let check = |name: &'static str, asked: &str, expected: &str| {
        let only = only(name);
        let found = match snapshot.resolve(asked, Scope::Only(&only), &|_| true) {
            Ok(found) => found.tool.id.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{asked} in {name}");
    };
    check("dev", "dev__github__search", "dev/github/search");
    check(
        "prod",
        "dev__github__search",
        "Unknown tool: dev__github__search. Did you mean one of: prod__github__search, prod__github__deploy?",
    );
    check("dev", "deploy", "Unknown tool: deploy");
    check("prod", "deploy", "prod/github/deploy");
    // Who sees one toolbox need not know that another has the same server.
    check("dev", "github__search", "dev/github/search");
    check("prod", "github__search", "prod/github/search");
    check("prod", "github_search", "prod/github/search");
    check("none", "search", "Unknown tool: search");
}

#[test]
fn an_id_says_what_about_it_is_wrong() {
    let snapshot = snapshot(&[shelf("dev/github", &["search", "list"]), shelf("dev/files", &["read"])]);
    let check = |id: &ToolId, expected: &str| {
        let found = match snapshot.lookup(id) {
            Ok(tool) => tool.flat_name.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
        assert_eq!(snapshot.by_id(id).is_some(), snapshot.lookup(id).is_ok());
    };
    check(&id("dev", "github", "search"), "github__search");
    check(
        &id("qa", "github", "search"),
        "Toolbox 'qa' is not open: Toolbox 'qa' not found. Available toolboxes: dev",
    );
    check(
        &id("dev", "gitlab", "search"),
        "Server 'gitlab' not found in toolbox 'dev'. Available servers: github, files",
    );
    check(
        &id("dev", "github", "serch"),
        "Tool 'serch' not found in server 'github' (toolbox 'dev'). Did you mean 'search'?",
    );
    check(&id("dev", "files", "search"), "Tool 'search' not found in server 'files' (toolbox 'dev')");
}

#[test]
fn servers_with_underscores_are_found_by_agent_and_mode() {
    let snapshot =
        snapshot(&[shelf("dev/my", &["files_read"]), shelf("dev/my_files", &["read", "list_all"])]);
    for (asked, expected) in [
        ("my_files_read", "dev/my/files_read"),
        ("my_files_read_2", "dev/my_files/read"),
        ("my_files_list_all", "dev/my_files/list_all"),
        ("my__files_read", "dev/my/files_read"),
        ("my_files__read", "dev/my_files/read"),
    ] {
        assert_eq!(resolved(&snapshot, asked), expected, "{asked}");
    }
}

#[test]
fn filters_decide_what_there_is_at_all() {
    let check = |settings: Value, expected: &[&str]| {
        let tools = ["alphaTool", "betaTool", "gammaTool"];
        let snapshot = snapshot(&[with_settings(shelf("dev/s", &tools), settings.clone())]);
        let names: Vec<&str> = snapshot.tools().iter().map(|tool| tool.id.name.as_str()).collect();
        assert_eq!(names, expected, "{settings}");
        for name in tools {
            let is_there = expected.contains(&name);
            assert_eq!(snapshot.lookup(&id("dev", "s", name)).is_ok(), is_there, "{settings} {name}");
            assert_eq!(snapshot.resolve(&format!("s__{name}"), Scope::All, &|_| true).is_ok(), is_there);
        }
    };
    check(json!({}), &["alphaTool", "betaTool", "gammaTool"]);
    check(
        json!({"toolsAllowed": ["alphaTool", "GammaTool"], "toolsDenied": ["betaTool"]}),
        &["alphaTool", "gammaTool"],
    );
    check(json!({"toolsDenied": ["*"]}), &[]);
    check(json!({"toolsAllowed": []}), &["alphaTool", "betaTool", "gammaTool"]);
    check(json!({"toolFilters": []}), &[]);
    check(json!({"toolFilters": ["any"], "toolsAllowed": ["a*", "b*"]}), &["alphaTool", "betaTool"]);
    check(json!({"toolFilters": ["a*"], "toolsAllowed": ["b*"]}), &[]);
}

#[test]
fn tools_stand_in_the_order_of_the_configuration() {
    let snapshot = snapshot(&[
        shelf("z/late", &["b", "a"]),
        shelf("z/early", &["c"]),
        shelf("a/first", &["d"]),
        shelf("a/empty", &[]),
    ]);
    assert_eq!(flat_names(&snapshot), ["late__b", "late__a", "early__c", "first__d"]);
    assert_eq!(snapshot.toolboxes().map(ToolboxName::as_str).collect::<Vec<_>>(), ["z", "a"]);
    assert_eq!(
        snapshot.servers(&toolbox("a")).map(ServerName::as_str).collect::<Vec<_>>(),
        ["first", "empty"]
    );
    let names = |tools: &mut dyn Iterator<Item = &Arc<Tool>>| -> Vec<String> {
        tools.map(|tool| tool.id.name.to_string()).collect()
    };
    assert_eq!(names(&mut snapshot.tools_of(&toolbox("z"))), ["b", "a", "c"]);
    assert_eq!(names(&mut snapshot.tools_of(&toolbox("none"))), [""; 0]);
    let server = ServerName::new("late").unwrap();
    assert_eq!(names(&mut snapshot.tools_of_server(&toolbox("z"), &server).iter()), ["b", "a"]);
    assert!(snapshot.tools_of_server(&toolbox("a"), &server).is_empty());
}

#[test]
fn names_that_are_taken_get_a_number_and_are_reported() {
    let snapshot = snapshot(&[shelf("dev/a", &["b__c", "x.y", "x y"]), shelf("dev/a__b", &["c"])]);
    assert_eq!(flat_names(&snapshot), ["a__b__c", "a__x_y", "a__x_y_2", "a__b__c_2"]);
    let collisions: Vec<String> = snapshot
        .collisions()
        .iter()
        .map(|c| format!("{}: {} -> {}, of {}", c.tool, c.wanted, c.given, c.taken_by))
        .collect();
    assert_eq!(
        collisions,
        ["dev/a/x y: a__x_y -> a__x_y_2, of dev/a/x.y", "dev/a__b/c: a__b__c -> a__b__c_2, of dev/a/b__c",]
    );
}

#[test]
fn names_do_not_depend_on_who_came_first() {
    let (a, b) = (shelf("dev/a", &["b__c"]), shelf("dev/a__b", &["c"]));
    let (other_a, no_a, no_b) = (shelf("prod/a", &[]), shelf("dev/a", &[]), shelf("dev/a__b", &[]));
    let a_first = snapshot(&[a.clone(), no_b]).rebuild(&[a.clone(), b.clone()], DEFAULT_LIMIT);
    let b_first = snapshot(&[no_a, b.clone()]).rebuild(&[a.clone(), b.clone()], DEFAULT_LIMIT);
    assert_eq!(flat_names(&a_first), ["a__b__c", "a__b__c_2"]);
    assert_eq!(flat_names(&a_first), flat_names(&b_first));
    // A toolbox whose server offers nothing yet counts, so that no name changes when it does.
    assert_eq!(flat_names(&snapshot(&[a, b, other_a])), ["dev__a__b__c", "a__b__c"]);
}

#[test]
fn a_refresh_shares_what_has_not_changed() {
    let shelves = [shelf("dev/a", &["one", "two"]), shelf("dev/b", &["three"]), shelf("dev/c", &["four"])];
    let before = snapshot(&shelves);
    let [a, _, c] = shelves;
    let after = before.rebuild(&[a.clone(), shelf("dev/b", &["five"]), c.clone()], DEFAULT_LIMIT);
    assert_eq!(flat_names(&after), ["a__one", "a__two", "b__five", "c__four"]);
    let is_shared = |name: &str| {
        let of = |snapshot: &Snapshot| {
            let found = snapshot.resolve(name, Scope::All, &|_| true).unwrap();
            Arc::clone(found.tool)
        };
        Arc::ptr_eq(&of(&before), &of(&after))
    };
    assert!(is_shared("a__one") && is_shared("a__two") && is_shared("c__four"));
    assert!(after.resolve("b__three", Scope::All, &|_| true).is_err());
    // A tool with another name is another tool, and its entry is still the same.
    let renamed = after.rebuild(&[a, c, shelf("prod/a", &[])], DEFAULT_LIMIT);
    assert_eq!(flat_names(&renamed), ["dev__a__one", "dev__a__two", "c__four"]);
    assert_eq!(flat_names(&after)[0], "a__one");
    assert!(Arc::ptr_eq(&renamed.tools()[0].entry, &after.tools()[0].entry));
}

#[test]
fn readers_keep_the_snapshot_they_have() {
    let catalogue = Catalogue::default();
    catalogue.publish(snapshot(&[shelf("dev/a", &["one"])]));
    let before = catalogue.load();
    catalogue.publish(snapshot(&[shelf("dev/a", &["two"])]));
    assert_eq!(flat_names(&before), ["a__one"]);
    assert_eq!(flat_names(&catalogue.load()), ["a__two"]);
}

#[test]
fn what_is_set_for_a_tool_counts_before_what_is_set_for_its_server() {
    let tools = ["plain", "tuned", "cached"];
    let mut shelf = with_settings(
        shelf("dev/s", &tools),
        json!({
            "queue": "slow", "priority": 3, "cache": "2m", "cacheScope": "tenant", "requestTimeoutMs": "30s",
            "toolResponseMaxBytes": 1000, "validateArguments": "server", "output": "strict",
            "toolsCache": {"cached": "off", "tuned": "1h"},
            "tools": {"tuned": {"queue": "fast", "priority": 99, "cache": "5s", "timeout": 0, "toolResponseMaxBytes": 5, "validateArguments": "pegboard"}},
        }),
    );
    let rules = |shelf: &Shelf| -> Vec<String> {
        let text = |tool: &Arc<Tool>| {
            let r = &tool.rules;
            format!(
                "{} queue {:?} priority {} cache {:?} {:?} limit {:?} output {:?} {:?} judge {:?}",
                tool.id.name,
                r.queue,
                r.priority.level(),
                r.cache,
                r.cache_scope,
                r.time_limit,
                r.max_output,
                r.output,
                r.judge,
            )
        };
        snapshot(std::slice::from_ref(shelf)).tools().iter().map(text).collect()
    };
    assert_snapshot!(rules(&shelf).join("\n"), @r#"
    plain queue Some("slow") priority 3 cache Some(120s) Tenant limit After(30s) output Some(1000) Strict judge Some(Server)
    tuned queue Some("fast") priority 10 cache Some(5s) Tenant limit Never output Some(5) Strict judge Some(Pegboard)
    cached queue Some("slow") priority 3 cache None Tenant limit After(30s) output Some(1000) Strict judge Some(Server)
    "#);
    shelf.settings = Arc::default();
    shelf.offer =
        Arc::new(Offer { tools: vec![Arc::new(entry("own").with_queue("mine"))], ..Offer::default() });
    assert_snapshot!(rules(&shelf).join("\n"), @r#"own queue Some("mine") priority 0 cache None Global limit Unset output None Warn judge None"#);
}

#[test]
fn the_operator_may_give_a_tool_another_schema_more_tags_and_instructions() {
    let written = r#"{"name":"a", "x":1e2,"inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}"#;
    let tool = entry("a").with_definition(serde_json::from_str(written).unwrap()).tag("old");
    let plain = Shelf {
        offer: Arc::new(Offer { tools: vec![Arc::new(tool), Arc::new(entry("b"))], ..Offer::default() }),
        ..shelf("dev/s", &[])
    };
    let changed = with_settings(
        plain.clone(),
        json!({
            "toolSchemas": {"a": {"required": ["q"]}, "b": 7},
            "tools": {"a": {"tags": ["old", "new"], "instructions": "With care."}},
        }),
    );
    let snapshot = snapshot(&[changed]);
    let [a, b] = snapshot.tools() else { panic!("two tools") };
    assert_eq!(
        a.entry.definition().as_str(),
        r#"{"name":"a", "x":1e2,"inputSchema":{"required":["q"],"type":"object"},"outputSchema":{"type":"object"}}"#
    );
    assert!(!a.entry.input_schema().accepts(&json!({})) && a.entry.input_schema().accepts(&json!({"q": 1})));
    assert_eq!(a.entry.tags(), ["old", "new"]);
    assert_eq!(a.instructions(), Some("With care."));
    assert!(Arc::ptr_eq(&b.entry, &plain.offer.tools[1]));
    assert_eq!(
        snapshot.warnings()[0].text,
        "toolSchemas.b is no JSON object; the tool's own schema is used until it is one"
    );
}

#[test]
fn what_is_odd_about_a_server_is_said_to_people() {
    let mut odd = with_settings(
        shelf("dev/odd", &["a", "a", "", "bell\u{7}", "search"]),
        json!({
            "tools": {"a": {"aliases": ["x", "x", "fine__a", "b", " "]}, "serach": {}},
            "toolsCache": {"zzz": "1m"},
        }),
    );
    Arc::make_mut(&mut odd.offer).warnings.push("said by the server".to_owned());
    let fine =
        with_settings(shelf("dev/fine", &["a"]), json!({"tools": {"a": {"aliases": ["x"]}, "later": {}}}));
    let absent = with_settings(shelf("dev/absent", &[]), json!({"tools": {"later": {}}}));
    let snapshot = snapshot(&[odd.clone(), fine, absent, odd]);
    let warnings: Vec<String> = snapshot
        .warnings()
        .iter()
        .map(|warning| format!("{}/{}: {}", warning.toolbox, warning.server, warning.text))
        .collect();
    assert_snapshot!(warnings.join("\n"), @r#"
    dev/odd: the toolbox has this server twice; the first is used
    dev/odd: said by the server
    dev/odd: the tool 'a' is offered more than once; the first is used
    dev/odd: a tool was left out: Tool names must be non-empty strings.
    dev/odd: a tool was left out: Tool names must not contain control characters: "bell\u{7}"
    dev/odd: tools.serach: the server has no such tool. Did you mean 'search'?
    dev/odd: toolsCache.zzz: the server has no such tool
    dev/fine: tools.later: the server has no such tool
    dev/odd: the alias 'fine__a' of tool 'a' is a name of dev/fine/a already; give it another
    dev/odd: an alias of tool 'a' is empty
    dev/fine: the alias 'x' of tool 'a' is a name of dev/odd/a already; give it another
    "#);
    assert_eq!(resolved(&snapshot, "fine__a"), "dev/fine/a");
    assert_eq!(resolved(&snapshot, "x"), "dev/odd/a");
}

#[test]
fn warnings_about_one_server_are_bounded() {
    let snapshot = snapshot(&[shelf("dev/s", &["same"; 1_000])]);
    assert_eq!(snapshot.warnings().len(), 51);
    assert_eq!(snapshot.warnings()[50].text, "and 949 more");
}

fn listing() -> Snapshot {
    let written = r#"{"name": "get.it", "outputSchema":{}, "_meta":{"n":1.0}}"#;
    let capped = entry("get.it").with_definition(serde_json::from_str(written).unwrap());
    let free =
        entry("see").with_definition(serde_json::from_str(r#"{"name":"see","outputSchema":{}}"#).unwrap());
    snapshot(&[
        with_settings(
            Shelf {
                offer: Arc::new(Offer { tools: vec![Arc::new(capped), Arc::new(free)], ..Offer::default() }),
                ..shelf("dev/s", &[])
            },
            json!({"tools": {"get.it": {"toolResponseMaxBytes": 9}}}),
        ),
        shelf("empty/none", &[]),
        Shelf {
            offer: Arc::new(Offer {
                tools: vec![Arc::new(entry("z").with_definition(serde_json::from_str("{}").unwrap()))],
                ..Offer::default()
            }),
            ..shelf("prod/t", &[])
        },
    ])
}

#[test]
fn lists_change_a_definition_only_where_they_must() {
    let snapshot = listing();
    let text = |form: Form, output_schemas: OutputSchemas| {
        snapshot.list(View { form, output_schemas }, Scope::All).as_str().replace("},{", "},\n{")
    };
    assert_snapshot!(text(Form::Flat, OutputSchemas::Kept), @r#"
    [{"name": "s__get_it", "outputSchema":{}, "_meta":{"n":1.0}},
    {"name":"s__see","outputSchema":{}},
    {"name":"t__z"}]
    "#);
    assert_snapshot!(text(Form::Flat, OutputSchemas::LeftOutWhereCapped), @r#"
    [{"name": "s__get_it", "_meta":{"n":1.0}},
    {"name":"s__see","outputSchema":{}},
    {"name":"t__z"}]
    "#);
    assert_snapshot!(text(Form::Toolbox, OutputSchemas::LeftOut), @r#"
    [{"name": "get.it", "_meta":{"n":1.0},"server":"s","toolbox":"dev"},
    {"name":"see","server":"s","toolbox":"dev"},
    {"server":"t","toolbox":"prod"}]
    "#);
}

#[test]
fn a_list_has_the_tools_of_its_scope() {
    let snapshot = listing();
    let names = |has: &(dyn Fn(&ToolboxName) -> bool + Sync)| -> Vec<String> {
        let list = snapshot.list(View::default(), Scope::Only(has));
        list.items().map(|item| item.get("name").unwrap().read().unwrap()).collect()
    };
    assert_eq!(names(&|_| true), ["s__get_it", "s__see", "t__z"]);
    assert_eq!(names(&|name| name.as_str() != "dev"), ["t__z"]);
    assert_eq!(names(&|name| name.as_str() == "dev"), ["s__get_it", "s__see"]);
    assert_eq!(names(&|_| false), [""; 0]);
    // The same bytes are handed out again.
    let all = || snapshot.list(View::default(), Scope::All);
    assert_eq!(all().as_bytes().as_ptr(), all().as_bytes().as_ptr());
    assert_eq!(all(), snapshot.list(View::default(), Scope::Only(&|_| true)));
}

#[test]
fn instructions_name_agents_first_and_then_every_server() {
    let said = |shelf: Shelf, words: &str| {
        let offer = Offer { instructions: Some(words.to_owned()), ..(*shelf.offer).clone() };
        Shelf { offer: Arc::new(offer), ..shelf }
    };
    let snapshot = snapshot(&[
        said(
            with_settings(
                shelf("dev/github", &["search", "list", "open"]),
                json!({"tools": {"search": {"instructions": "Quote\nphrases."}, "open": {"instructions": " "}}}),
            ),
            "\nSearch before you open.\n",
        ),
        shelf("dev/files", &["read"]),
        shelf("prod/files", &["read"]),
        with_settings(shelf("dev/web", &["get"]), json!({"tools": {"get": {"instructions": "Rarely."}}})),
        shelf("dev/absent", &[]),
        Shelf { kind: ToolKind::Agent, ..said(shelf("dev/agent", &["writer"]), "Writes.") },
    ]);
    assert_snapshot!(snapshot.instructions(Scope::All), @"
    #### agent

    Writes.

    ### Available Tool Providers

    #### github

    Search before you open.

    - github__search: Quote phrases.

    #### dev__files

    No specific instructions for this server.

    #### prod__files

    No specific instructions for this server.

    #### web

    - web__get: Rarely.
    ");
    assert_snapshot!(snapshot.instructions(Scope::Only(&|toolbox| toolbox.as_str() == "prod")), @"
    ### Available Tool Providers

    #### prod__files

    No specific instructions for this server.
    ");
    let huge = said(shelf("dev/huge", &["x"]), &"é".repeat(1_000_000));
    assert!(self::snapshot(&[huge]).instructions(Scope::All).len() < 20_000);
}

#[test]
fn a_hundred_thousand_tools_are_all_found() {
    let shelves: Vec<Shelf> = (0..20)
        .map(|server| {
            let names: Vec<String> = (0..5_000).map(|at| format!("tool.{at}")).collect();
            shelf(&format!("dev/server{server}"), &names.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .collect();
    let snapshot = snapshot(&shelves);
    assert_eq!(snapshot.tools().len(), 100_000);
    for tool in snapshot.tools() {
        let found = snapshot.resolve(&tool.flat_name, Scope::All, &|_| true).unwrap();
        assert!(Arc::ptr_eq(found.tool, tool));
    }
    assert_eq!(resolved(&snapshot, "server19_tool_4999"), "dev/server19/tool.4999");
    let near = resolved(&snapshot, "server7__tol_1234");
    assert!(near.contains("Did you mean one of: server7__tool_1234, "), "{near}");
}
