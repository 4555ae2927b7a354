//! The story of an agent that gets its work done through one MCP endpoint.

use std::time::Duration;

use pegboard::prelude::*;
use pegboard::provider::ServerState;
use pegboard::runtime::event::Event;
use pegboard::runtime::optree::SessionNode;
use pegboard::telemetry::Telemetry;
use pegboard::wiring::Board;
use pegboard_wire::client::Era;
use tokio::task::JoinSet;
use tokio::time;

use super::servers::BARCODE;
use super::stage::{self, Agent, document, good, refusal};
use super::{Checks, expect};

/// How long calls may take to end when everything does; there should be none by then.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// How long something is waited for that must come, and how often somebody looks.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(2);

/// What becomes of the servers after the story.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// They end.
    End,
    /// They stay up.
    Stay,
}

/// Plays the story, and gives what it was played on.
pub(super) async fn run(checks: &mut Checks, telemetry: &Telemetry, afterwards: Afterwards) -> Option<Board> {
    checks.begin("3 MCP servers, a web service and an agent behind one MCP endpoint");
    let board = match stage::set_up(telemetry).await {
        Ok(board) => board,
        Err(error) => {
            checks.add("the start", async { Err(error) }).await;
            return None;
        }
    };
    match Agent::connect(&board.gateway, None, Era::Session).await {
        Ok(agent) => {
            find_tools(checks, &board, &agent).await;
            use_tools(checks, &agent).await;
            keep_order(checks, &board, &agent).await;
            combine_tools(checks, &agent).await;
            bridge(checks, &board, &agent).await;
            checks.begin("Everything is on record");
            if afterwards == Afterwards::End {
                checks.add("the end of the servers", end(&board)).await;
            }
            checks.add_drawn("the op tree", async { op_tree(&board) }).await;
        }
        Err(error) => checks.add("the client", async { Err(error) }).await,
    }
    Some(board)
}

async fn find_tools(checks: &mut Checks, board: &Board, agent: &Agent) {
    checks.add("the list of tools", list(agent)).await;
    checks.add("the instructions", async { instructions(agent) }).await;
    checks.add("open_toolbox", open(agent)).await;
    checks.add("get_tools", find(agent)).await;
    checks.add("profile flat", flat_names(board)).await;
}

async fn use_tools(checks: &mut Checks, agent: &Agent) {
    checks.begin("A model calls them");
    checks.add("use_tool", use_one(agent)).await;
    checks.add("a web service", web_service(agent)).await;
    checks.add("a REST tool", rest_tool(agent)).await;
    checks.add("a wrong name", wrong_name(agent)).await;
    checks.add("a bad argument", bad_argument(agent)).await;
}

async fn keep_order(checks: &mut Checks, board: &Board, agent: &Agent) {
    checks.begin("Nothing floods, hangs or dies for long");
    checks.add("the cache", repeat(agent)).await;
    checks.add("the queue", queue(board, agent)).await;
    checks.add("the time-out", time_out(agent)).await;
    checks.add("the stored output", stored_output(agent)).await;
    checks.add("a server that dies", come_back(board)).await;
}

async fn combine_tools(checks: &mut Checks, agent: &Agent) {
    checks.begin("Many tools, one call");
    checks.add("run_chain", chain(agent)).await;
    checks.add("batch", batch(agent)).await;
    checks.add("an agent", sub_agent(agent)).await;
}

async fn bridge(checks: &mut Checks, board: &Board, agent: &Agent) {
    checks.begin("Any client with any server, whichever MCP they speak");
    checks.add("a question of the server", question(agent)).await;
    checks.add("a client without a session", without_session(board)).await;
    checks.add("progress", progress(agent)).await;
    checks.add("the bytes of an answer", bytes(agent)).await;
}

async fn list(agent: &Agent) -> Result<String> {
    let tools = agent.tools().await?;
    let expected = ["open_toolbox", "use_tool", "get_tools", "batch", "run_chain"];
    expect(tools == expected, format_args!("the list has {tools:?}"))?;
    Ok(format!("a client's list is short: {}", tools.join(", ")))
}

fn instructions(agent: &Agent) -> Result<String> {
    let told = agent.instructions();
    let expected = [
        "- office (2 servers: clock, notes) Time and notes",
        "- market (1 server: shop) Things to buy",
        "- town (3 servers: weather, rest, agent) What it is like outside",
    ];
    expect(expected.iter().all(|line| told.contains(line)), told)?;
    Ok("it is told of 3 toolboxes, office, market and town, and what each is for".to_owned())
}

async fn open(agent: &Agent) -> Result<String> {
    let mut n_tools = Vec::new();
    for toolbox in ["office", "market", "town"] {
        let opened = document(&agent.call("open_toolbox", json!({"toolbox": toolbox})).await?)?;
        n_tools.push(opened["tools"].as_array().map_or(0, Vec::len));
    }
    expect(n_tools == [5, 7, 4], format_args!("the toolboxes have {n_tools:?} tools"))?;
    Ok("open_toolbox: 5 tools in office, 7 in market, 4 in town".to_owned())
}

async fn find(agent: &Agent) -> Result<String> {
    let found = document(&agent.call("get_tools", json!({"query": "write a note"})).await?)?;
    let best = &found["tools"][0];
    let id = json!({"toolbox": "office", "server": "notes", "name": "add"});
    expect(best["tool"] == id, &found)?;
    Ok(format!(
        "get_tools \"write a note\" finds {}, ready for use_tool",
        best["name"].as_str().unwrap_or_default()
    ))
}

async fn flat_names(board: &Board) -> Result<String> {
    let agent = Agent::connect(&board.gateway, Some("flat"), Era::Session).await?;
    let tools = agent.tools().await?;
    expect(tools.len() == 16, format_args!("the list has {tools:?}"))?;
    let price = document(&agent.call("shop__price", json!({"item": "lamp"})).await?)?;
    expect(price["cents"] == 400, &price)?;
    Ok(format!("or, as profile flat, all {} tools by name: shop__price → 400 cents", tools.len()))
}

async fn use_one(agent: &Agent) -> Result<String> {
    let note = good(&agent.use_tool("office/notes/add", json!({"text": "buy a lamp"})).await?)?;
    expect(note == r#"{"id":1,"text":"buy a lamp"}"#, &note)?;
    Ok(format!("use_tool office/notes/add → {note}"))
}

async fn web_service(agent: &Agent) -> Result<String> {
    let arguments = json!({"city": "São/Paulo", "days": 2});
    let forecast = document(&agent.use_tool("town/weather/forecast", arguments).await?)?;
    let (city, asked) = (&forecast["city"], forecast["asked"].as_str().unwrap_or_default());
    expect(city == "São/Paulo" && asked == "/forecast/S%C3%A3o%2FPaulo?days=2", &forecast)?;
    Ok(format!("an OpenAPI document is a server: GET {asked}"))
}

async fn rest_tool(agent: &Agent) -> Result<String> {
    let arguments = json!({"city": "Oslo", "sky": "clear"});
    let heard = good(&agent.use_tool("town/rest/tell_others", arguments).await?)?;
    expect(heard == r#"{"heard":{"city":"Oslo","sky":"clear"}}"#, &heard)?;
    Ok("a request written down is a tool: POST /reports → Oslo, clear".to_owned())
}

async fn wrong_name(agent: &Agent) -> Result<String> {
    let text = refusal(&agent.use_tool("office/notes/ad", json!({"text": "hang it up"})).await?)?;
    let expected = "Error executing tool: Tool 'ad' not found in server 'notes' (toolbox 'office'). \
                    Did you mean 'add'?";
    expect(text == expected, &text)?;
    Ok("a wrong name is explained: Tool 'ad' not found in … Did you mean 'add'?".to_owned())
}

async fn bad_argument(agent: &Agent) -> Result<String> {
    let arguments = json!({"item": "lamp", "cents": 400, "count": 10});
    let result = agent.use_tool("market/shop/order", arguments).await?;
    let text = refusal(&result)?;
    let expected = "$.count: value 10 > maximum 9";
    expect(text.contains(expected), &text)?;
    let error = &result.to_value()["structuredContent"]["error"];
    expect(error["executed"] == false, error)?;
    Ok(format!("a bad argument never reaches the server: {expected}"))
}

async fn repeat(agent: &Agent) -> Result<String> {
    let ask = async || good(&agent.use_tool("office/clock/now", json!({"city": "Oslo"})).await?);
    // The clock goes on whenever somebody looks, so the same time twice was seen once.
    let times = [ask().await?, ask().await?];
    expect(times == ["12:00:01 in Oslo"; 2], format_args!("{times:?}"))?;
    Ok(format!("a repeated call is answered from the cache: still {}", times[1]))
}

async fn queue(board: &Board, agent: &Agent) -> Result<String> {
    let mut calls = JoinSet::new();
    for parcel in 1..=6 {
        let agent = agent.clone();
        calls.spawn(async move {
            document(&agent.use_tool("market/shop/deliver", json!({"parcel": parcel})).await?)
        });
    }
    // None of them gets anywhere before all have come.
    patiently(async || {
        let expected = |queue: &Event| match queue {
            Event::QueueDepth { queue, in_use: 2, waiting: 4, .. } => &**queue == "van",
            _ => false,
        };
        Ok(board.runtime.queues().iter().any(expected).then_some(()))
    })
    .await?;
    good(&agent.use_tool("market/shop/clear_road", json!({})).await?)?;
    while let Some(delivered) = calls.join_next().await {
        let delivered = delivered??;
        expect(delivered["most_at_once"].as_u64().is_some_and(|most| most <= 2), &delivered)?;
    }
    Ok("6 calls go through a queue of 2: never more than 2 run, 4 wait".to_owned())
}

async fn time_out(agent: &Agent) -> Result<String> {
    let text = refusal(&agent.use_tool("office/clock/snooze", json!({})).await?)?;
    expect(text.ends_with("Tool execution timed out"), &text)?;
    // It is the same process: its clock goes on where it was.
    let time = good(&agent.use_tool("office/clock/now", json!({"city": "Rome"})).await?)?;
    expect(time == "12:00:02 in Rome", &time)?;
    Ok(format!("a call that hangs is cut at 100 ms, its server is still well: {time}"))
}

async fn stored_output(agent: &Agent) -> Result<String> {
    let stored = good(&agent.use_tool("office/notes/archive", json!({"notes": 10_000})).await?)?;
    expect(stored.contains("(228893 bytes, 10000 lines"), &stored)?;
    let handle = stored.split('"').nth(1).ok_or_else(|| ToolError::new(&stored))?.to_owned();
    let tools = agent.tools().await?;
    expect(tools.iter().any(|tool| tool == "tool_output"), "tool_output is not in the list")?;
    let arguments = json!({"handle": handle, "mode": "grep", "pattern": "note 3141:"});
    let found = good(&agent.call("tool_output", arguments).await?)?;
    expect(found.contains("3141: note 3141: all is well"), &found)?;
    Ok("an answer of 229 KB is stored for the model: tool_output greps line 3141".to_owned())
}

async fn chain(agent: &Agent) -> Result<String> {
    let steps = json!([
        {"tool": "shop__price", "with": {"item": "item"}, "as": "price"},
        {"tool": "shop__order", "with": {"item": "item", "cents": "price.cents", "count": "count"}, "as": "order"},
        {"tool": "notes__add", "with": {"text": "order.receipt"}, "as": "note"},
    ]);
    let input = json!({"item": "lamp", "count": 2});
    let run = agent.call("run_chain", json!({"steps": steps, "input": input, "output": "note.text"})).await?;
    let note = good(&run)?;
    expect(note == "2 × lamp for 800 cents", &note)?;
    Ok(format!("run_chain: price → order → note, in 2 toolboxes → {note}"))
}

async fn batch(agent: &Agent) -> Result<String> {
    let calls = json!([
        {"id": "a", "tool": "shop__price", "parameters": {"item": "chair"}},
        {"id": "b", "tool": "clock__nwo", "parameters": {"city": "Lima"}},
    ]);
    let results = document(&agent.call("batch", json!({"calls": calls})).await?)?;
    let (good, bad) = (&results["results"][0]["output"]["cents"], &results["results"][1]["error"]);
    let hint = "Did you mean one of: clock__now";
    expect(*good == 500 && bad["message"].as_str().is_some_and(|text| text.contains(hint)), &results)?;
    Ok("batch: one call answers, the other is told: did you mean clock__now?".to_owned())
}

async fn sub_agent(agent: &Agent) -> Result<String> {
    let arguments = json!({"prompt": "I go to Oslo", "reason": "to pack", "format": "sub-agent"});
    let advice = good(&agent.use_tool("town/agent/guide", arguments).await?)?;
    expect(advice == "Leave the umbrella at home.", &advice)?;
    Ok(format!("an agent is a tool that uses tools and a model: {advice}"))
}

async fn question(agent: &Agent) -> Result<String> {
    let gift = good(&agent.use_tool("market/shop/gift", json!({})).await?)?;
    expect(gift == "a gift for Ada" && agent.n_asked() == 1, &gift)?;
    let revision = agent.revision();
    Ok(format!("a client of {revision} is asked by shop, a server of 2026-07-28: {gift}"))
}

async fn progress(agent: &Agent) -> Result<String> {
    let heard = agent.watch("market/shop/stocktake").await?;
    expect(heard == [1.0, 2.0, 3.0], format_args!("the progress heard is {heard:?}"))?;
    Ok("progress of a call comes through in order, and before its result".to_owned())
}

async fn bytes(agent: &Agent) -> Result<String> {
    let answer = agent.use_tool("market/shop/barcode", json!({})).await?;
    expect(answer.as_str() == BARCODE, answer.as_str())?;
    Ok("answers come through byte for byte: 12345678901234567890123".to_owned())
}

async fn come_back(board: &Board) -> Result<String> {
    let agent = Agent::connect(&board.gateway, None, Era::Stateless).await?;
    refusal(&agent.use_tool("office/notes/crash", json!({})).await?)?;
    let note = patiently(async || {
        let result = agent.use_tool("office/notes/add", json!({"text": "start again"})).await?;
        if refusal(&result).is_ok() { Ok(None) } else { document(&result).map(Some) }
    })
    .await?;
    // A new process knows nothing of earlier notes.
    expect(note["id"] == 1, &note)?;
    Ok("a server that dies in mid-call is started again, and its notes begin at 1".to_owned())
}

async fn without_session(board: &Board) -> Result<String> {
    let agent = Agent::connect(&board.gateway, None, Era::Stateless).await?;
    let tools = agent.tools().await?;
    let expected = ["open_toolbox", "use_tool", "get_tools", "batch", "run_chain", "tool_output"];
    expect(tools == expected, format_args!("the list has {tools:?}"))?;
    let time = good(&agent.use_tool("office/clock/now", json!({"city": "Oslo"})).await?)?;
    expect(time == "12:00:01 in Oslo", &time)?;
    let gift = good(&agent.use_tool("market/shop/gift", json!({})).await?)?;
    expect(gift == "a gift for Ada" && agent.n_asked() == 1, &gift)?;
    let note = document(&agent.use_tool("office/notes/add", json!({"text": "hang it up"})).await?)?;
    expect(note["id"] == 3, &note)?;
    let revision = agent.revision();
    Ok(format!("a client of {revision} uses notes, a server of 2025-11-25: note {}", note["id"]))
}

fn op_tree(board: &Board) -> Result<(String, String)> {
    let mut tree = session(board)?;
    let n_calls = tree.totals.tools_run;
    expect(n_calls == 29, format_args!("{n_calls} calls are on record"))?;
    // The whole tree is long; what it shows best are calls that made calls.
    for turn in &mut tree.turns {
        turn.ops.retain(|call| call.child_session.is_some());
        turn.ops.retain(|call| !call.name.ends_with("batch"));
    }
    Ok((
        format!("all {n_calls} calls of the first client; two of them, with the calls that they made:"),
        tree.to_string(),
    ))
}

async fn end(board: &Board) -> Result<String> {
    let n_canceled = board.runtime.shut_down(GRACE).await;
    expect(n_canceled == 0, format_args!("{n_canceled} calls were still under way"))?;
    let servers = board.runtime.servers();
    let n_stopped = servers.iter().filter(|server| server.state == ServerState::Stopped).count();
    expect(n_stopped == 6, format_args!("{n_stopped} of 6 servers have ended"))?;
    Ok("all servers have ended".to_owned())
}

/// Looks until there is something to see.
async fn patiently<T>(look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let looking = async {
        loop {
            match look().await? {
                Some(seen) => return Ok(seen),
                None => time::sleep(LOOK).await,
            }
        }
    };
    time::timeout(PATIENCE, looking).await?
}

/// What the first client has done.
fn session(board: &Board) -> Result<SessionNode> {
    let callers = board.runtime.callers();
    let first = callers.first().ok_or_else(|| ToolError::new("the session of the client is gone"))?;
    Ok(first.tree().snapshot())
}
