//! The operation tree of a session.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pegboard_runtime::optree::{
    AccountingScope, CallPath, MAX_DEPTH, OpEnd, OpError, OpKind, OpNode, OpPath, OpStart, OpStatus, OpTree,
    OpTreeLimits, OpUsage, Operation, Payload, SessionDetails, SessionIdentity, SessionNode, Totals,
};
use proptest::prelude::*;
use serde_json::json;
use tokio::time;

/// A fixed time for all tests.
fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

fn session_info() -> SessionIdentity {
    let details = SessionDetails {
        trace_id: Some("t-1".into()),
        agent: Some("planner".into()),
        call_path: CallPath::new("planner"),
        title: Some("Fix the build".into()),
        ..SessionDetails::default()
    };
    SessionIdentity::new("s-1", noon()).with_details(details)
}

fn tree() -> OpTree {
    OpTree::new(session_info())
}

fn tree_with_limits(per_session: usize, per_tree: usize) -> OpTree {
    OpTree::with_limits(session_info(), OpTreeLimits { per_session, per_tree })
}

fn start(kind: OpKind, name: &str) -> OpStart {
    OpStart::of(kind, name, noon())
}

fn tool(tree: &OpTree, name: &str) -> Operation {
    tree.begin(OpStart { server: Some("github".into()), size: 12, ..start(OpKind::Tool, name) })
}

fn path(text: &str) -> OpPath {
    text.parse().unwrap()
}

/// Returns the paths of all retained operations of a session.
fn retained_paths(node: &SessionNode) -> Vec<String> {
    let turns = node.steps.iter().chain(&node.turns);
    turns.flat_map(|turn| &turn.ops).map(|op| op.op_id.to_string()).collect()
}

fn usage(tokens_in: u64, cost_usd: f64) -> OpEnd {
    OpEnd { usage: OpUsage { tokens_in, cost_usd, ..OpUsage::default() }, ..OpEnd::ok() }
}

/// A session with operations of every kind.
async fn sample_session() -> OpTree {
    let tree = tree();
    tree.begin(start(OpKind::System, "connect")).end(OpEnd::ok());
    let model = tree.begin(start(OpKind::Llm, "model-1"));
    time::advance(Duration::from_millis(1_500)).await;
    model.end(usage(1_200, 0.25));
    let search = tool(&tree, "search");
    search.set_attribute("place", "queue 2");
    time::advance(Duration::from_millis(12)).await;
    search.log("asked again");
    let response = OpEnd { size: 4_321, payload: Some(Payload::of("found")), ..OpEnd::ok() };
    search.end(OpEnd { cached: true, waited: Duration::from_millis(20), ..response });
    tree.next_turn();
    let agent = tree.begin(OpStart { size: 40, ..start(OpKind::Session, "researcher") });
    let child = agent.child("Find the cause").unwrap();
    let refused = tool(&child, "read");
    time::advance(Duration::from_millis(7)).await;
    refused.end(OpEnd::failed(OpError::new("not_permitted", "no such\nfile \u{1b}[31m")));
    drop(tool(&child, "write"));
    child.end(Ok(()));
    agent.end(OpEnd { size: 90, ..OpEnd::ok() });
    tree.set_status("almost there");
    tree
}

#[tokio::test(start_paused = true)]
async fn a_tree_is_drawn_as_text() {
    let tree = sample_session().await;
    let running = tool(&tree, "push");
    time::advance(Duration::from_secs(61)).await;
    let drawing = without_child_ids(&tree.snapshot(), &tree.snapshot().to_string());
    insta::assert_snapshot!(drawing, @r"
    … session s-1 “Fix the build” (planner), almost there
    ├─ S0-1 ✓ system connect, 0s
    ├─ 1-1 ✓ llm model-1, 1s500ms
    ├─ 1-2 ✓ tool github/search, 12ms, 12 in, 4.3k out, cached, waited 20ms
    ├─ 2-1 ✓ agent researcher, 7ms, 40 in, 90 out
    │  └─ ✓ session child “Find the cause” (planner:researcher)
    │     ├─ 2-1.1-1 ✗ tool github/read, 7ms, 12 in: not_permitted: no such\nfile \u{1b}[31m
    │     └─ 2-1.1-2 ✗ tool github/write, 0s, 12 in: canceled
    └─ 2-2 … tool github/push, 1m1s, 12 in
    3 tools, 1 agent, 1200 tokens in, $0.2500
    ");
    running.end(OpEnd::ok());
}

/// Replaces the random session ids by `child`.
fn without_child_ids(node: &SessionNode, text: &str) -> String {
    let ops = node.turns.iter().flat_map(|turn| &turn.ops);
    let children = ops.filter_map(|op| op.child_session.as_ref());
    children.fold(text.to_owned(), |text, child| text.replace(&*child.id, "child"))
}

#[tokio::test(start_paused = true)]
async fn a_session_is_exported_as_json() {
    let tree = tree();
    time::advance(Duration::from_millis(1_519)).await;
    tree.begin(start(OpKind::Llm, "model-1")).end(usage(1_200, 0.25));
    tree.set_attribute("client", "editor");
    tree.set_status("almost there");
    tree.end(Err(OpError::new("timeout", "the session took too long")));
    let mut node = tree.snapshot();
    node.turns[0].ops.clear();
    insta::assert_snapshot!(serde_json::to_string_pretty(&node).unwrap(), @r#"
    {
      "id": "s-1",
      "traceId": "t-1",
      "agentId": "planner",
      "callPath": "planner",
      "sessionTitle": "Fix the build",
      "latestStatus": "almost there",
      "startedAt": 1800000000000,
      "endedAt": 1800000001519,
      "success": false,
      "error": {
        "kind": "timeout",
        "message": "the session took too long"
      },
      "attributes": {
        "client": "editor"
      },
      "totals": {
        "tokensIn": 1200,
        "tokensOut": 0,
        "tokensCacheRead": 0,
        "tokensCacheWrite": 0,
        "costUsd": 0.25,
        "toolsRun": 0,
        "agentsRun": 0
      },
      "turns": [
        {
          "id": "1",
          "index": 1,
          "ops": []
        }
      ],
      "steps": [],
      "droppedOperations": 0
    }
    "#);
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_exported_as_json() {
    let search = sample_session().await.find(&path("1-2")).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&search).unwrap(), @r#"
    {
      "opId": "1-2",
      "kind": "tool",
      "name": "search",
      "server": "github",
      "status": "ok",
      "startedAt": 1800000000000,
      "endedAt": 1800000000012,
      "latencyMs": 12.0,
      "waitedMs": 20.0,
      "cached": true,
      "attributes": {
        "place": "queue 2"
      },
      "logs": [
        {
          "timestamp": 1800000000012,
          "message": "asked again"
        }
      ],
      "accounting": [
        {
          "type": "tool",
          "timestamp": 1800000000000,
          "status": "ok",
          "latency": 12.0,
          "mcpServer": "github",
          "command": "search",
          "charactersIn": 12,
          "charactersOut": 4321,
          "agentId": "planner",
          "callPath": "planner",
          "txnId": "s-1",
          "originTxnId": "s-1"
        }
      ],
      "request": {
        "kind": "tool",
        "size": 12,
        "truncated": false
      },
      "response": {
        "payload": "found",
        "size": 4321,
        "truncated": false
      }
    }
    "#);
}

#[tokio::test(start_paused = true)]
async fn an_export_contains_nested_sessions() {
    let json = serde_json::to_value(sample_session().await.snapshot()).unwrap();
    for (pointer, expected) in [
        ("/steps/0/id", json!("S0")),
        ("/steps/0/ops/0/opId", json!("S0-1")),
        ("/turns/0/ops/0/usage/tokensIn", json!(1_200)),
        ("/turns/1/ops/0/kind", json!("session")),
        ("/turns/1/ops/0/childSession/sessionTitle", json!("Find the cause")),
        ("/turns/1/ops/0/childSession/callPath", json!("planner:researcher")),
        ("/turns/1/ops/0/childSession/success", json!(true)),
        ("/turns/1/ops/0/childSession/totals/toolsRun", json!(2)),
        ("/turns/1/ops/0/childSession/turns/0/id", json!("2-1.1")),
        ("/turns/1/ops/0/childSession/turns/0/ops/0/opId", json!("2-1.1-1")),
        ("/turns/1/ops/0/childSession/turns/0/ops/0/error/kind", json!("not_permitted")),
        ("/turns/1/ops/0/childSession/turns/0/ops/0/accounting/0/parentTxnId", json!("s-1")),
        ("/turns/1/ops/0/childSession/turns/0/ops/1/error/message", json!("canceled")),
        ("/totals/toolsRun", json!(3)),
    ] {
        assert_eq!(json.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[test]
fn paths_number_operations_within_turns_and_steps_separately() {
    let tree = tree();
    let paths: Vec<String> = [OpKind::Llm, OpKind::System, OpKind::Tool, OpKind::System, OpKind::Session]
        .map(|kind| tree.begin(start(kind, "x")).path().to_string())
        .into();
    assert_eq!(paths, ["1-1", "S0-1", "1-2", "S0-2", "1-3"]);
    tree.next_turn();
    let agent = tree.begin(start(OpKind::Session, "a"));
    let child = agent.child("").unwrap();
    child.next_turn();
    assert_eq!(tool(&child, "b").path().to_string(), "2-1.2-1");
    assert_eq!(child.begin(start(OpKind::System, "c")).path().to_string(), "2-1.S0-1");
}

#[test]
fn a_path_round_trips_or_is_refused() {
    for text in ["1-1", "1-1.2-3", "S0-1", "1-2.S0-4.10-99", "4294967295-1"] {
        assert_eq!(path(text).to_string(), text);
    }
    let too_deep = ["1-1"; MAX_DEPTH + 2].join(".");
    for text in [
        "",
        "1",
        "1-",
        "-1",
        "0-1",
        "1-0",
        "01-1",
        "+1-1",
        "1-1.",
        "S1-1",
        "s0-1",
        "1-1-1",
        "9999999999-1",
        &too_deep,
    ] {
        assert!(text.parse::<OpPath>().is_err(), "{text}");
    }
    let refusal = "1-\u{1b}".parse::<OpPath>().unwrap_err().to_string();
    assert_eq!(refusal, r"invalid operation path '1-\u{1b}': expected 1-2, 1-2.1-1 or S0-1");
}

#[test]
fn a_call_path_is_normalized() {
    for (text, expected) in [
        ("a: b ::tool:b:b:c", "a:b:c"),
        ("", ""),
        (" : tool :: ", ""),
        ("a:tool:a", "a"),
        ("a:b:a", "a:b:a"),
        ("Tool:toolbox", "Tool:toolbox"),
    ] {
        assert_eq!(CallPath::new(text).as_str(), expected, "{text:?}");
    }
    let path = CallPath::new("a:b");
    assert_eq!(path.join("b"), path);
    assert_eq!(path.join("tool"), path);
    assert_eq!(path.join("c").as_str(), "a:b:c");
    assert_eq!(CallPath::default().join("a").as_str(), "a");
    assert!(CallPath::new(&"é:x".repeat(100_000)).as_str().len() <= 1_024);
}

#[tokio::test(start_paused = true)]
async fn every_ended_tool_has_an_accounting_entry() {
    let tree = sample_session().await;
    let _running = tool(&tree, "push");
    let own = tree.accounting(AccountingScope::Own);
    assert_eq!(own.len(), 1);
    let all = tree.accounting(AccountingScope::Tree);
    let view: Vec<_> = all
        .iter()
        .map(|entry| {
            (&*entry.command, entry.status, entry.characters_in, entry.characters_out, entry.error.as_deref())
        })
        .collect();
    assert_eq!(
        view,
        [
            ("search", OpStatus::Ok, 12, 4_321, None),
            ("read", OpStatus::Failed, 12, 0, Some("no such\nfile \u{1b}[31m")),
            ("write", OpStatus::Failed, 12, 0, Some("canceled")),
        ]
    );
    let read = &all[1];
    assert_eq!(read.latency, Duration::from_millis(7));
    assert_eq!(read.call_path.as_str(), "planner:researcher");
    assert_eq!((read.parent_txn_id.as_deref(), &*read.origin_txn_id), (Some("s-1"), "s-1"));
    assert_ne!(read.txn_id, all[0].txn_id);
}

#[test]
fn an_operation_has_one_child_session() {
    let tree = tree();
    let agent = tree.begin(start(OpKind::Session, "a"));
    let (first, second) = (agent.child("one").unwrap(), agent.child("two").unwrap());
    tool(&second, "x").end(OpEnd::ok());
    assert_eq!(first.snapshot(), second.snapshot());
    assert_eq!(first.info().details().title.as_deref(), Some("one"));
    assert_eq!(tree.totals().agents_run, 1);
}

#[test]
fn a_child_session_ends_with_its_operation() {
    let tree = tree();
    let (canceled, done) = (tree.begin(start(OpKind::Session, "a")), tree.begin(start(OpKind::Session, "b")));
    let (lost, good) = (canceled.child("").unwrap(), done.child("").unwrap());
    drop(canceled);
    good.end(Ok(()));
    done.end(OpEnd::failed(OpError::new("timeout", "too late")));
    assert_eq!(lost.snapshot().error.unwrap().message(), "canceled");
    assert_eq!(good.snapshot().success, Some(true), "it had ended before");
}

#[test]
fn an_operation_is_found_by_its_whole_path() {
    let tree = tree();
    let agent = tree.begin(start(OpKind::Session, "a"));
    let child = agent.child("").unwrap();
    tool(&child, "x").end(OpEnd::ok());
    let name = |found: Option<OpNode>| found.map(|op| op.name.to_string());
    for (from, text, expected) in [
        (&tree, "1-1", Some("a")),
        (&tree, "1-1.1-1", Some("x")),
        (&child, "1-1.1-1", Some("x")),
        (&child, "1-1", None),
        (&child, "1-2.1-1", None),
        (&tree, "1-2", None),
        (&tree, "S0-1", None),
        (&tree, "1-1.1-1.1-1", None),
    ] {
        assert_eq!(name(from.find(&path(text))).as_deref(), expected, "{text}");
    }
}

#[test]
fn the_oldest_finished_are_evicted_first_and_totals_stay() {
    let tree = tree_with_limits(3, 100);
    let running = tool(&tree, "slow");
    for _ in 0..10 {
        tool(&tree, "quick").end(usage(5, 0.5));
    }
    let node = tree.snapshot();
    assert_eq!(retained_paths(&node), ["1-1", "1-10", "1-11"]);
    assert_eq!(node.dropped_operations, 8);
    running.end(OpEnd::ok());
    tool(&tree, "last").end(OpEnd::ok());
    assert_eq!(retained_paths(&tree.snapshot()), ["1-10", "1-11", "1-12"]);
    let expected = Totals { tokens_in: 50, cost_usd: 5.0, tools_run: 12, ..Totals::default() };
    assert_eq!(tree.totals(), expected);
}

#[tokio::test(start_paused = true)]
async fn operations_without_room_are_still_counted() {
    let tree = tree_with_limits(1, 100);
    let first = tool(&tree, "kept");
    let second = tool(&tree, "not kept");
    second.set_attribute("a", "b");
    let child = second.child("").unwrap();
    tool(&child, "below").end(usage(1, 0.0));
    second.end(usage(2, 0.0));
    first.end(usage(4, 0.0));
    insta::assert_snapshot!(tree.snapshot(), @r"
    … session s-1 “Fix the build” (planner)
    ├─ 1 operation not kept
    └─ 1-1 ✓ tool github/kept, 0s, 12 in
    3 tools, 0 agents, 7 tokens in
    ");
    let Totals { tokens_in, tools_run, agents_run, .. } = tree.totals();
    assert_eq!((tokens_in, tools_run, agents_run), (7, 3, 0));
}

#[test]
fn a_whole_tree_is_limited_and_room_is_released() {
    let tree = tree_with_limits(100, 10);
    let agent = tree.begin(start(OpKind::Session, "a"));
    let child = agent.child("").unwrap();
    for _ in 0..20 {
        tool(&child, "x").end(OpEnd::ok());
    }
    assert_eq!(retained_paths(&child.snapshot()).len(), 9, "one place is the agent's");
    drop(child);
    agent.end(OpEnd::ok());
    // The agent is evicted, which frees everything below it.
    for _ in 0..30 {
        tool(&tree, "y").end(OpEnd::ok());
    }
    let node = tree.snapshot();
    assert_eq!(retained_paths(&node).len(), 10);
    assert_eq!(node.totals.tools_run, 50);
}

#[test]
fn a_full_tree_makes_room_for_new_operations() {
    let tree = tree_with_limits(100, 100);
    for _ in 0..200 {
        tool(&tree, "old").end(OpEnd::ok());
    }
    let agent = tree.begin(start(OpKind::Session, "a"));
    let child = agent.child("").unwrap();
    let live: Vec<Operation> = (0..5).map(|_| tool(&child, "new")).collect();
    assert_eq!(retained_paths(&child.snapshot()).len(), live.len());
}

#[test]
fn totals_reach_the_root_past_an_evicted_session() {
    let tree = tree_with_limits(1, 100);
    let agent = tree.begin(start(OpKind::Session, "a"));
    let below = agent.child("").unwrap().begin(start(OpKind::Session, "b"));
    let deepest = below.child("").unwrap();
    below.end(OpEnd::ok());
    agent.end(OpEnd::ok());
    tool(&tree, "takes the place").end(OpEnd::ok());
    tool(&deepest, "late").end(usage(9, 0.0));
    assert_eq!(tree.totals().tokens_in, 9);
}

#[test]
fn nesting_is_limited_and_the_deepest_export_is_readable() {
    let root = tree();
    let (mut session, mut operations) = (root.clone(), Vec::new());
    for _ in 0..MAX_DEPTH {
        operations.push(session.begin(start(OpKind::Session, "agent")));
        session = operations.last().unwrap().child("").unwrap();
    }
    let last = tool(&session, "x");
    assert_eq!(path(&last.path().to_string()), last.path());
    insta::assert_snapshot!(last.child("").unwrap_err(), @"sessions are nested at most 20 deep; run this work in an outer session");
    last.end(OpEnd::ok());
    let json = serde_json::to_string(&root.snapshot()).unwrap();
    serde_json::from_str::<serde_json::Value>(&json).unwrap();
    assert_eq!(root.totals().tools_run, 1);
    assert_eq!(root.accounting(AccountingScope::Tree).len(), 1);
}

#[test]
fn everything_retained_is_bounded() {
    let tree = tree();
    let long = "é\u{202e}".repeat(100_000);
    let operation = tree.begin(OpStart { server: Some(long.as_str().into()), ..start(OpKind::Tool, &long) });
    for number in 0..1_000 {
        operation.set_attribute(&format!("key {number}"), &long);
        operation.log(&format!("line {number}"));
        tree.set_attribute(&format!("key {number}"), &long);
    }
    operation.set_attribute("key 0", "changed");
    operation.log(&long);
    tree.set_status(&long);
    let child = operation.child(&long).unwrap();
    let payload = Some(Payload::of(&long));
    operation.end(OpEnd { payload, ..OpEnd::failed(OpError::new("odd", &long)) });
    let node = tree.snapshot();
    let op = &node.turns[0].ops[0];
    assert_eq!((op.attributes.len(), op.logs.len(), node.attributes.len()), (64, 200, 64));
    assert_eq!(&*op.attributes["key 0"], "changed");
    assert_eq!(&*op.logs[198].message, "line 999");
    assert!(op.response.as_ref().unwrap().truncated);
    assert_eq!(op.response.as_ref().unwrap().payload.as_ref().unwrap().len(), 4_095, "no character is cut");
    assert!(child.info().details().title.as_ref().unwrap().len() <= 256);
    assert!(serde_json::to_string(&node).unwrap().len() < 200_000);
    assert!(node.to_string().lines().all(|line| line.chars().count() < 4_000 && !line.contains('\u{202e}')));
}

#[test]
fn invalid_amounts_are_ignored() {
    let tree = tree();
    for cost in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.5, f64::MAX, f64::MAX] {
        tool(&tree, "x").end(usage(u64::MAX, cost));
    }
    assert_eq!((tree.totals().tokens_in, tree.totals().cost_usd), (u64::MAX, f64::MAX));
    let early = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    let tree = OpTree::new(SessionIdentity::new("", early));
    tree.begin(OpStart::of(OpKind::Tool, "", early)).end(OpEnd::ok());
    assert_eq!(tree.snapshot().turns[0].ops[0].started_at, 0);
}

#[test]
fn a_snapshot_is_immutable() {
    let tree = tree();
    let operation = tool(&tree, "x");
    let before = tree.snapshot();
    operation.log("later");
    operation.end(OpEnd::ok());
    assert_eq!(before.turns[0].ops[0].status, OpStatus::Running);
    assert_eq!(before.turns[0].ops[0].logs, []);
    assert_eq!(tree.snapshot().turns[0].ops[0].status, OpStatus::Ok);
}

#[test]
fn many_threads_share_a_tree() {
    const THREADS: u64 = 8;
    const EACH: u64 = 200;
    let tree = tree_with_limits(50, 200);
    let work = |tree: &OpTree| -> Vec<String> {
        let mut paths = Vec::new();
        for number in 0..EACH {
            let agent = tree.begin(start(OpKind::Session, "a"));
            let child = agent.child("").unwrap();
            let below = tool(&child, "x");
            paths.extend([agent.path().to_string(), below.path().to_string()]);
            if number % 50 == 0 {
                tree.next_turn();
                assert!(retained_paths(&tree.snapshot()).len() <= 50);
            }
            below.end(usage(1, 0.25));
            agent.end(usage(1, 0.25));
        }
        paths
    };
    let paths: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| work(&tree))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let n_expected = THREADS * EACH;
    assert_eq!(paths.iter().collect::<HashSet<_>>().len() as u64, 2 * n_expected);
    #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
    let cost_usd = n_expected as f64 * 0.5;
    let (tokens_in, tools_run, agents_run) = (2 * n_expected, n_expected, n_expected);
    assert_eq!(tree.totals(), Totals { tokens_in, cost_usd, tools_run, agents_run, ..Totals::default() });
}

/// An event in a session.
#[derive(Clone, Debug)]
enum Event {
    Begin(OpKind),
    End(usize),
    Drop(usize),
    Child(usize),
    NextTurn,
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop::sample::select(vec![OpKind::Llm, OpKind::Tool, OpKind::Session, OpKind::System]);
    prop_oneof![
        4 => kind.prop_map(Event::Begin),
        2 => any::<usize>().prop_map(Event::End),
        1 => any::<usize>().prop_map(Event::Drop),
        1 => any::<usize>().prop_map(Event::Child),
        1 => Just(Event::NextTurn),
    ]
}

proptest! {
    #[test]
    fn paths_are_unique_and_totals_add_up(
        events in prop::collection::vec(event(), 0..200), per_session in 0_usize..8, per_tree in 0_usize..16,
    ) {
        let root = tree_with_limits(per_session, per_tree);
        let mut tree = root.clone();
        let (mut live, mut paths, mut n_tools, mut tokens) = (Vec::new(), HashSet::new(), 0, 0);
        let mut n_begun = 0;
        for event in events {
            match event {
                Event::Begin(kind) => {
                    let operation = tree.begin(start(kind, "x"));
                    n_begun += 1;
                    prop_assert!(paths.insert(operation.path().to_string()));
                    live.push((operation, kind));
                }
                Event::NextTurn => tree.next_turn(),
                Event::End(_) | Event::Drop(_) | Event::Child(_) if live.is_empty() => {}
                Event::Child(at) => tree = live[at % live.len()].0.child("").unwrap_or(tree),
                Event::End(at) => {
                    let (operation, kind) = live.swap_remove(at % live.len());
                    n_tools += u64::from(kind == OpKind::Tool);
                    tokens += 3;
                    operation.end(usage(3, 0.0));
                }
                Event::Drop(at) => {
                    let (_, kind) = live.swap_remove(at % live.len());
                    n_tools += u64::from(kind == OpKind::Tool);
                }
            }
            prop_assert_eq!((root.totals().tools_run, root.totals().tokens_in), (n_tools, tokens));
            let node = root.snapshot();
            prop_assert!(retained_paths(&node).len() <= per_session.min(per_tree));
        }
        prop_assert_eq!(paths.len(), n_begun);
        // All room is released: only operations from now on are retained in the end.
        drop((live, tree));
        for _ in 0..50 {
            tool(&root, "y").end(OpEnd::ok());
        }
        prop_assert_eq!(retained_paths(&root.snapshot()).len(), per_session.min(per_tree));
    }

    #[test]
    fn no_text_breaks_the_drawing(name in any::<String>(), message in any::<String>()) {
        let details = SessionDetails { title: Some(Arc::from(name.as_str())), ..SessionDetails::default() };
        let tree = OpTree::new(SessionIdentity::new(name.as_str(), noon()).with_details(details));
        tree.begin(start(OpKind::Tool, &name)).end(OpEnd::failed(OpError::new("odd", &message)));
        tree.set_status(&message);
        let drawing = tree.snapshot().to_string();
        prop_assert_eq!(drawing.lines().count(), 3);
        prop_assert!(drawing.chars().all(|character| character == '\n' || !character.is_control()));
    }
}
