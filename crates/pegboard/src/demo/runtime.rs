//! The runtime at work: queue, cache, time-out, stored outputs, batch, chain and the op tree.

use std::sync::Arc;
use std::time::Duration;

use pegboard::call::{Call, Ended, Invoker};
use pegboard::chain::ChainSpec;
use pegboard::prelude::*;
use pegboard::provider::Local;
use pegboard::runtime::{Caller, CallerOptions, Runtime};
use pegboard::stores::limits::{CacheLimits, OutputLimits};
use pegboard::stores::memory;
use pegboard::telemetry::{Log, Telemetry};

use super::{Checks, expect};

/// Look a city up, which takes a moment.
#[tool(read_only)]
async fn weather(
    /// The city's name
    city: String,
) -> Result<Value> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(json!({"city": city, "celsius": city.len()}))
}

/// Sleep for longer than anybody would wait.
#[tool]
async fn sleep_in() -> Result<String> {
    tokio::time::sleep(Duration::from_mins(1)).await;
    Ok("rested".to_owned())
}

/// Give a report that is too long to read.
#[tool(read_only)]
fn report(
    /// How many lines
    lines: usize,
) -> String {
    let lines: Vec<String> = (1..=lines).map(|line| format!("line {line}: all is well\n")).collect();
    lines.concat()
}

pub(super) async fn run(checks: &mut Checks, telemetry: &Telemetry) {
    let started = start(telemetry).await;
    let caller = match &started {
        Ok(runtime) => runtime.caller(CallerOptions::default()),
        Err(error) => {
            let error = error.clone();
            return checks.add(async { Err(error) }).await;
        }
    };
    checks.add(async { catalogue(&caller) }).await;
    checks.add(queue(&caller)).await;
    checks.add(cache(&caller)).await;
    checks.add(time_out(&caller)).await;
    checks.add(stored_output(&caller)).await;
    checks.add(batch(&caller)).await;
    checks.add(chain(&caller)).await;
    checks.add_drawn(async { op_tree(&caller) }).await;
    if let Ok(runtime) = started {
        runtime.shut_down(Duration::from_secs(1)).await;
    }
}

async fn start(telemetry: &Telemetry) -> Result<Runtime> {
    let settings = json!({
        "toolTimeout": "200ms", "toolResponseMaxBytes": 2_000, "queues": {"slow": {"maxConcurrency": 1}},
    });
    let server = json!({"queue": "slow", "toolsCache": {"weather": "1m"}});
    let forecast: ChainSpec = serde_json::from_value(json!({
        "chain": "forecast",
        "steps": [
            {"tool": "city__weather", "with": {"city": "city"}, "as": "now"},
            {"tool": "city__weather", "with": {"city": {"$template": "{now.city} tomorrow"}}, "as": "tomorrow"},
        ],
        "output": "tomorrow.celsius",
    }))?;
    let tools = Arc::new(Local::new(tools![weather, sleep_in, report]));
    Ok(Runtime::builder()
        .settings(serde_json::from_value(settings)?)
        .cache(Arc::new(memory::Cache::new(CacheLimits::default())))
        .outputs(Arc::new(memory::Outputs::new(OutputLimits::default())))
        .observe(Arc::new(Log))
        .spans(telemetry.spans())
        .toolbox("demo", "Embedded tools")
        .provide_with("city", tools, serde_json::from_value(server)?)
        .chain(forecast)
        .start()
        .await?)
}

async fn call(caller: &Caller, tool: &str, arguments: Value) -> Ended {
    caller.start(Call::new(tool, arguments)).await
}

fn text(ended: &Ended) -> Result<String> {
    match &ended.result {
        Ok(output) => Ok(output.text().into_owned()),
        Err(error) => Err(ToolError::new(error)),
    }
}

fn catalogue(caller: &Caller) -> Result<String> {
    let catalogue = caller.runtime().catalogue();
    let names: Vec<&str> = catalogue.tools().iter().map(|tool| &*tool.flat_name).collect();
    let expected = ["city__weather", "city__sleep_in", "city__report", "chain__forecast"];
    expect(names == expected, format_args!("the catalogue has {names:?}"))?;
    Ok(format!("catalogue: {}", names.join(", ")))
}

async fn queue(caller: &Caller) -> Result<String> {
    let ask = |city: &str| call(caller, "city__weather", json!({"city": city}));
    let (first, second, third) = tokio::join!(ask("Oslo"), ask("Rome"), ask("Lima"));
    let waited = [&first, &second, &third].map(|ended| ended.journey.waited.is_some());
    expect(waited == [false, true, true], format_args!("who waited: {waited:?}"))?;
    Ok("queue: of three calls at once one runs and two wait their turn".to_owned())
}

async fn cache(caller: &Caller) -> Result<String> {
    let again = call(caller, "city__weather", json!({"city": "Oslo"})).await;
    expect(again.journey.is_cached, "the second answer came from the tool")?;
    Ok(format!("cache: asked again, answered at once: {}", text(&again)?))
}

async fn time_out(caller: &Caller) -> Result<String> {
    let ended = call(caller, "city__sleep_in", json!({})).await;
    let error =
        ended.result.err().map(|error| format!("{} ({})", error, error.kind().as_str())).unwrap_or_default();
    expect(error == "Tool execution timed out (timeout)", &error)?;
    Ok(format!("time-out: a tool too slow is given up: {error}"))
}

async fn stored_output(caller: &Caller) -> Result<String> {
    let ended = call(caller, "city__report", json!({"lines": 1_000})).await;
    let handle =
        ended.journey.stored.as_ref().ok_or_else(|| ToolError::new("nothing was stored"))?.to_string();
    let found =
        call(caller, "tool_output", json!({"handle": handle, "mode": "grep", "pattern": "line 77[0-1]"}))
            .await;
    let found = text(&found)?;
    expect(found.contains("770: line 770: all is well\n771: line 771: all is well"), &found)?;
    Ok("stored output: 22 KB became a handle, and grep finds line 770 in it".to_owned())
}

async fn batch(caller: &Caller) -> Result<String> {
    let calls = json!([
        {"id": "a", "tool": "city__weather", "parameters": {"city": "Cairo"}},
        {"id": "b", "tool": "city__wether"},
    ]);
    let ended = call(caller, "batch", json!({"calls": calls})).await;
    let results: Value = serde_json::from_str(&text(&ended)?)?;
    let (good, bad) = (&results["results"][0]["output"]["celsius"], &results["results"][1]["error"]);
    expect(*good == 5 && bad["code"] == "UNKNOWN_TOOL", &results)?;
    Ok("batch: one call answers, the other says: did you mean city__weather?".to_owned())
}

async fn chain(caller: &Caller) -> Result<String> {
    let ended = call(caller, "chain__forecast", json!({"city": "Oslo"})).await;
    let answer = text(&ended)?;
    expect(answer == "13", &answer)?;
    Ok(format!("chain: two tools published as one, chain__forecast → {answer}"))
}

fn op_tree(caller: &Caller) -> Result<(String, String)> {
    let tree = caller.tree().snapshot();
    let totals = caller.tree().totals();
    expect(totals.tools_run == 13, format_args!("{} calls are in the tree", totals.tools_run))?;
    Ok((
        format!("op tree: {} calls, what each took, waited for and gave", totals.tools_run),
        tree.to_string(),
    ))
}
