//! The tour: an agent works through one MCP endpoint.

use std::time::Duration;

use pegboard::owner::OwnerScope;
use pegboard::prelude::*;
use pegboard::provider::ServerState;
use pegboard::runtime::event::RuntimeEvent;
use pegboard::runtime::optree::SessionNode;
use pegboard::telemetry::Telemetry;
use pegboard::wiring::App;
use pegboard_wire::client::Era;
use tokio::task::JoinSet;
use tokio::time;

use super::harness::{self, DemoClient, error_text, success_json, success_text};
use super::servers::BARCODE;
use super::{DemoChecks, expect};

/// Grace period for calls at shutdown; none should be in flight.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// Timeout and interval of polling.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Fate of the servers after the tour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterTour {
    /// Shut down.
    ShutDown,
    /// Keep running.
    KeepRunning,
}

/// Runs the tour and returns the running app.
pub(super) async fn run(
    checks: &mut DemoChecks,
    telemetry: &Telemetry,
    afterwards: AfterTour,
) -> Option<App> {
    checks.begin("3 MCP servers, a web service and an agent behind one MCP endpoint");
    let app = match harness::set_up(telemetry).await {
        Ok(app) => app,
        Err(error) => {
            checks.add("the start", async { Err(error) }).await;
            return None;
        }
    };
    match DemoClient::connect(&app.gateway, None, Era::Session).await {
        Ok(agent) => {
            find_tools(checks, &app, &agent).await;
            use_tools(checks, &agent).await;
            keep_order(checks, &app, &agent).await;
            combine_tools(checks, &agent).await;
            bridge(checks, &app, &agent).await;
            checks.begin("Every call is recorded");
            if afterwards == AfterTour::ShutDown {
                checks.add("the end of the servers", end(&app)).await;
            }
            checks.add_drawn("the op tree", async { op_tree(&app) }).await;
        }
        Err(error) => checks.add("the client", async { Err(error) }).await,
    }
    Some(app)
}

async fn find_tools(checks: &mut DemoChecks, app: &App, agent: &DemoClient) {
    checks.add("the list of tools", list(agent)).await;
    checks.add("the instructions", async { instructions(agent) }).await;
    checks.add("open_toolbox", open(agent)).await;
    checks.add("get_tools", find(agent)).await;
    checks.add("profile flat", flat_names(app)).await;
}

async fn use_tools(checks: &mut DemoChecks, agent: &DemoClient) {
    checks.begin("Tool calls");
    checks.add("use_tool", use_one(agent)).await;
    checks.add("a web service", web_service(agent)).await;
    checks.add("a REST tool", rest_tool(agent)).await;
    checks.add("a wrong name", wrong_name(agent)).await;
    checks.add("a bad argument", bad_argument(agent)).await;
}

async fn keep_order(checks: &mut DemoChecks, app: &App, agent: &DemoClient) {
    checks.begin("Queues, caches, timeouts and restarts");
    checks.add("the cache", repeat(agent)).await;
    checks.add("the queue", queue(app, agent)).await;
    checks.add("the time-out", time_out(agent)).await;
    checks.add("the stored output", stored_output(agent)).await;
    checks.add("a server that dies", come_back(app)).await;
}

async fn combine_tools(checks: &mut DemoChecks, agent: &DemoClient) {
    checks.begin("Chains, batches and agents");
    checks.add("run_chain", chain(agent)).await;
    checks.add("batch", batch(agent)).await;
    checks.add("an agent", sub_agent(agent)).await;
}

async fn bridge(checks: &mut DemoChecks, app: &App, agent: &DemoClient) {
    checks.begin("Any client with any server, across MCP revisions");
    checks.add("a question of the server", question(agent)).await;
    checks.add("a client without a session", without_session(app)).await;
    checks.add("progress", progress(agent)).await;
    checks.add("the bytes of an answer", bytes(agent)).await;
}

async fn list(agent: &DemoClient) -> Result<String> {
    let tools = agent.tools().await?;
    let expected = ["open_toolbox", "use_tool", "get_tools", "batch", "run_chain"];
    expect(tools == expected, format_args!("the list has {tools:?}"))?;
    Ok(format!("clients list five tools: {}", tools.join(", ")))
}

fn instructions(agent: &DemoClient) -> Result<String> {
    let text = agent.instructions();
    let expected = [
        "- office (2 servers: clock, notes) Time and notes",
        "- market (1 server: shop) Things to buy",
        "- town (3 servers: weather, rest, agent) What it is like outside",
    ];
    expect(expected.iter().all(|line| text.contains(line)), text)?;
    Ok("the instructions describe 3 toolboxes: office, market and town".to_owned())
}

async fn open(agent: &DemoClient) -> Result<String> {
    let mut n_tools = Vec::new();
    for toolbox in ["office", "market", "town"] {
        let opened = success_json(&agent.call("open_toolbox", json!({"toolbox": toolbox})).await?)?;
        n_tools.push(opened["tools"].as_array().map_or(0, Vec::len));
    }
    expect(n_tools == [5, 7, 4], format_args!("the toolboxes have {n_tools:?} tools"))?;
    Ok("open_toolbox: 5 tools in office, 7 in market, 4 in town".to_owned())
}

async fn find(agent: &DemoClient) -> Result<String> {
    let found = success_json(&agent.call("get_tools", json!({"query": "write a note"})).await?)?;
    let best = &found["tools"][0];
    let id = json!({"toolbox": "office", "server": "notes", "name": "add"});
    expect(best["tool"] == id, &found)?;
    Ok(format!(
        "get_tools \"write a note\" finds {}, ready for use_tool",
        best["name"].as_str().unwrap_or_default()
    ))
}

async fn flat_names(app: &App) -> Result<String> {
    let agent = DemoClient::connect(&app.gateway, Some("flat"), Era::Session).await?;
    let tools = agent.tools().await?;
    expect(tools.len() == 16, format_args!("the list has {tools:?}"))?;
    let price = success_json(&agent.call("shop__price", json!({"item": "lamp"})).await?)?;
    expect(price["cents"] == 400, &price)?;
    Ok(format!("profile flat lists all {} tools by name: shop__price → 400 cents", tools.len()))
}

async fn use_one(agent: &DemoClient) -> Result<String> {
    let note = success_text(&agent.use_tool("office/notes/add", json!({"text": "buy a lamp"})).await?)?;
    expect(note == r#"{"id":1,"text":"buy a lamp"}"#, &note)?;
    Ok(format!("use_tool office/notes/add → {note}"))
}

async fn web_service(agent: &DemoClient) -> Result<String> {
    let arguments = json!({"city": "São/Paulo", "days": 2});
    let forecast = success_json(&agent.use_tool("town/weather/forecast", arguments).await?)?;
    let (city, asked) = (&forecast["city"], forecast["asked"].as_str().unwrap_or_default());
    expect(city == "São/Paulo" && asked == "/forecast/S%C3%A3o%2FPaulo?days=2", &forecast)?;
    Ok(format!("an OpenAPI document becomes a server: GET {asked}"))
}

async fn rest_tool(agent: &DemoClient) -> Result<String> {
    let arguments = json!({"city": "Oslo", "sky": "clear"});
    let reply = success_text(&agent.use_tool("town/rest/tell_others", arguments).await?)?;
    expect(reply == r#"{"heard":{"city":"Oslo","sky":"clear"}}"#, &reply)?;
    Ok("a request template becomes a tool: POST /reports → Oslo, clear".to_owned())
}

async fn wrong_name(agent: &DemoClient) -> Result<String> {
    let text = error_text(&agent.use_tool("office/notes/ad", json!({"text": "hang it up"})).await?)?;
    let expected = "Error executing tool: Tool 'ad' not found in server 'notes' (toolbox 'office'). \
                    Did you mean 'add'?";
    expect(text == expected, &text)?;
    Ok("unknown names get suggestions: Tool 'ad' not found in … Did you mean 'add'?".to_owned())
}

async fn bad_argument(agent: &DemoClient) -> Result<String> {
    let arguments = json!({"item": "lamp", "cents": 400, "count": 10});
    let result = agent.use_tool("market/shop/order", arguments).await?;
    let text = error_text(&result)?;
    let expected = "$.count: value 10 > maximum 9";
    expect(text.contains(expected), &text)?;
    let error = &result.to_value()["structuredContent"]["error"];
    expect(error["executed"] == false, error)?;
    Ok(format!("an invalid argument never reaches the server: {expected}"))
}

async fn repeat(agent: &DemoClient) -> Result<String> {
    let ask = async || success_text(&agent.use_tool("office/clock/now", json!({"city": "Oslo"})).await?);
    // The clock advances with every call, so the same time twice means one call.
    let times = [ask().await?, ask().await?];
    expect(times == ["12:00:01 in Oslo"; 2], format_args!("{times:?}"))?;
    Ok(format!("a repeated call is answered from the cache: still {}", times[1]))
}

async fn queue(app: &App, agent: &DemoClient) -> Result<String> {
    let mut calls = JoinSet::new();
    for parcel in 1..=6 {
        let agent = agent.clone();
        calls.spawn(async move {
            success_json(&agent.use_tool("market/shop/deliver", json!({"parcel": parcel})).await?)
        });
    }
    // No delivery can finish before all have been requested.
    poll_until(async || {
        let expected = |queue: &RuntimeEvent| match queue {
            RuntimeEvent::QueueDepth { queue, in_use: 2, waiting: 4, .. } => &**queue == "van",
            _ => false,
        };
        Ok(app.runtime.queues().iter().any(expected).then_some(()))
    })
    .await?;
    success_text(&agent.use_tool("market/shop/clear_road", json!({})).await?)?;
    while let Some(delivered) = calls.join_next().await {
        let delivered = delivered??;
        expect(delivered["most_at_once"].as_u64().is_some_and(|most| most <= 2), &delivered)?;
    }
    Ok("6 calls share a queue with 2 slots: 2 run, 4 wait".to_owned())
}

async fn time_out(agent: &DemoClient) -> Result<String> {
    let text = error_text(&agent.use_tool("office/clock/snooze", json!({})).await?)?;
    expect(text.ends_with("Tool execution timed out"), &text)?;
    // The process survived: its clock continues.
    let time = success_text(&agent.use_tool("office/clock/now", json!({"city": "Rome"})).await?)?;
    expect(time == "12:00:02 in Rome", &time)?;
    Ok(format!("a hanging call times out at 100 ms, its server keeps running: {time}"))
}

async fn stored_output(agent: &DemoClient) -> Result<String> {
    let stored = success_text(&agent.use_tool("office/notes/archive", json!({"notes": 10_000})).await?)?;
    expect(stored.contains("(228893 bytes, 10000 lines"), &stored)?;
    let handle = stored.split('"').nth(1).ok_or_else(|| ToolError::new(&stored))?.to_owned();
    let tools = agent.tools().await?;
    expect(tools.iter().any(|tool| tool == "tool_output"), "tool_output is not in the list")?;
    let arguments = json!({"handle": handle, "mode": "grep", "pattern": "note 3141:"});
    let found = success_text(&agent.call("tool_output", arguments).await?)?;
    expect(found.contains("3141: note 3141: all is well"), &found)?;
    Ok("a 229 KB output is stored: tool_output greps line 3141".to_owned())
}

async fn chain(agent: &DemoClient) -> Result<String> {
    let steps = json!([
        {"tool": "shop__price", "with": {"item": "item"}, "as": "price"},
        {"tool": "shop__order", "with": {"item": "item", "cents": "price.cents", "count": "count"}, "as": "order"},
        {"tool": "notes__add", "with": {"text": "order.receipt"}, "as": "note"},
    ]);
    let input = json!({"item": "lamp", "count": 2});
    let run = agent.call("run_chain", json!({"steps": steps, "input": input, "output": "note.text"})).await?;
    let note = success_text(&run)?;
    expect(note == "2 × lamp for 800 cents", &note)?;
    Ok(format!("run_chain: price → order → note, in 2 toolboxes → {note}"))
}

async fn batch(agent: &DemoClient) -> Result<String> {
    let calls = json!([
        {"id": "a", "tool": "shop__price", "parameters": {"item": "chair"}},
        {"id": "b", "tool": "clock__nwo", "parameters": {"city": "Lima"}},
    ]);
    let results = success_json(&agent.call("batch", json!({"calls": calls})).await?)?;
    let (cents, bad) = (&results["results"][0]["output"]["cents"], &results["results"][1]["error"]);
    let hint = "Did you mean one of: clock__now";
    expect(*cents == 500 && bad["message"].as_str().is_some_and(|text| text.contains(hint)), &results)?;
    Ok("batch: one call succeeds, the other gets: did you mean clock__now?".to_owned())
}

async fn sub_agent(agent: &DemoClient) -> Result<String> {
    let arguments = json!({"prompt": "I go to Oslo", "reason": "to pack", "format": "sub-agent"});
    let advice = success_text(&agent.use_tool("town/agent/guide", arguments).await?)?;
    expect(advice == "Leave the umbrella at home.", &advice)?;
    Ok(format!("an agent is a tool that uses tools and a model: {advice}"))
}

async fn question(agent: &DemoClient) -> Result<String> {
    let gift = success_text(&agent.use_tool("market/shop/gift", json!({})).await?)?;
    expect(gift == "a gift for Ada" && agent.n_elicitations() == 1, &gift)?;
    let revision = agent.revision();
    Ok(format!("shop (2026-07-28) sends an elicitation to a {revision} client: {gift}"))
}

async fn progress(agent: &DemoClient) -> Result<String> {
    let values = agent.watch("market/shop/stocktake").await?;
    expect(values == [1.0, 2.0, 3.0], format_args!("received progress {values:?}"))?;
    Ok("progress notifications arrive in order, before the result".to_owned())
}

async fn bytes(agent: &DemoClient) -> Result<String> {
    let answer = agent.use_tool("market/shop/barcode", json!({})).await?;
    expect(answer.as_str() == BARCODE, answer.as_str())?;
    Ok("results pass through byte for byte: 12345678901234567890123".to_owned())
}

async fn come_back(app: &App) -> Result<String> {
    let agent = DemoClient::connect(&app.gateway, None, Era::Stateless).await?;
    error_text(&agent.use_tool("office/notes/crash", json!({})).await?)?;
    let note = poll_until(async || {
        let result = agent.use_tool("office/notes/add", json!({"text": "start again"})).await?;
        if error_text(&result).is_ok() { Ok(None) } else { success_json(&result).map(Some) }
    })
    .await?;
    // A new process starts with no notes.
    expect(note["id"] == 1, &note)?;
    Ok("a server that crashes mid-call is restarted: its notes start at 1 again".to_owned())
}

async fn without_session(app: &App) -> Result<String> {
    let agent = DemoClient::connect(&app.gateway, None, Era::Stateless).await?;
    let tools = agent.tools().await?;
    let expected = ["open_toolbox", "use_tool", "get_tools", "batch", "run_chain", "tool_output"];
    expect(tools == expected, format_args!("the list has {tools:?}"))?;
    let time = success_text(&agent.use_tool("office/clock/now", json!({"city": "Oslo"})).await?)?;
    expect(time == "12:00:01 in Oslo", &time)?;
    let gift = success_text(&agent.use_tool("market/shop/gift", json!({})).await?)?;
    expect(gift == "a gift for Ada" && agent.n_elicitations() == 1, &gift)?;
    let note = success_json(&agent.use_tool("office/notes/add", json!({"text": "hang it up"})).await?)?;
    expect(note["id"] == 3, &note)?;
    let revision = agent.revision();
    Ok(format!("a {revision} client calls notes (2025-11-25): note {}", note["id"]))
}

fn op_tree(app: &App) -> Result<(String, String)> {
    let mut tree = session(app)?;
    let n_calls = tree.totals.tools_run;
    expect(n_calls == 29, format_args!("{n_calls} calls are on record"))?;
    // The full tree is long; show only calls that made calls.
    for turn in &mut tree.turns {
        turn.ops.retain(|call| call.child_session.is_some());
        turn.ops.retain(|call| !call.name.ends_with("batch"));
    }
    Ok((
        format!("all {n_calls} calls of the first client; two of them with their subcalls:"),
        tree.to_string(),
    ))
}

async fn end(app: &App) -> Result<String> {
    let n_canceled = app.runtime.shut_down(GRACE).await;
    expect(n_canceled == 0, format_args!("{n_canceled} calls were still in flight"))?;
    let servers = app.runtime.servers(&OwnerScope::All);
    let n_stopped = servers.iter().filter(|server| server.state == ServerState::Stopped).count();
    expect(n_stopped == 6, format_args!("{n_stopped} of 6 servers have ended"))?;
    Ok("all servers have stopped".to_owned())
}

/// Polls until there is a value.
async fn poll_until<T>(look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let looking = async {
        loop {
            match look().await? {
                Some(seen) => return Ok(seen),
                None => time::sleep(POLL_INTERVAL).await,
            }
        }
    };
    time::timeout(WAIT_TIMEOUT, looking).await?
}

/// Returns the operation tree of the first client.
fn session(app: &App) -> Result<SessionNode> {
    let callers = app.runtime.callers();
    let first = callers.first().ok_or_else(|| ToolError::new("the session of the client is gone"))?;
    Ok(first.tree().snapshot())
}
