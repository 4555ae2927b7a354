//! Checks of the library: functions as tools, and validation.

use pegboard::prelude::*;

use super::{DemoChecks, expect};

/// Convert a temperature to Fahrenheit.
#[tool(tags("units"), read_only)]
fn fahrenheit(
    /// Degrees Celsius
    celsius: f64,
) -> f64 {
    celsius * 9.0 / 5.0 + 32.0
}

/// Say how warm a temperature is.
#[tool(tags("units", "text"), read_only)]
fn describe(
    /// Degrees Fahrenheit
    degrees: f64,
) -> String {
    if degrees > 80.0 { "hot" } else { "pleasant" }.to_owned()
}

/// Always fail.
#[tool(name = "broken")]
fn always_broken() -> Result<String> {
    Err(ToolError::new("the wire is cut"))
}

/// Always panic.
#[tool]
fn panicking() -> String {
    // The demo shows what a bug in a tool does; the panic message would only be confusing.
    std::panic::resume_unwind(Box::new("a bug in the tool"))
}

pub(super) async fn run(checks: &mut DemoChecks) {
    let registry = ToolRegistry::new();
    checks.begin("Rust functions as tools");
    checks.add("functions as tools", register(&registry)).await;
    checks.add("failing functions", contain(&registry)).await;
    checks.add("validation", async { validate() }).await;
    checks.add("a chain that cannot work", async { refuse_chain(&registry) }).await;
}

async fn register(registry: &ToolRegistry) -> Result<String> {
    let registry = registry.clone().with(tools![fahrenheit, describe, always_broken, panicking])?;
    let taken = registry.register(fahrenheit::tool_entry());
    expect(taken.is_err(), "a name was taken twice")?;
    let found = registry.search(&ToolSearch::new().name("E").all_tags(["units", "text"]));
    let names: Vec<&str> = found.iter().map(|entry| entry.name()).collect();
    expect(names == ["describe"], format_args!("the search found {names:?}"))?;
    let outcome = registry.invoke("fahrenheit", json!({"celsius": 21.5})).await;
    expect(outcome.data == json!(70.7), &outcome.message)?;
    Ok(format!("{} Rust functions, found by name and tag: fahrenheit(21.5) → 70.7", registry.len()))
}

async fn contain(registry: &ToolRegistry) -> Result<String> {
    let failed = registry.invoke("broken", json!({})).await;
    let panicked = registry.invoke("panicking", json!({})).await;
    expect(failed.message == "Tool 'broken' raised an exception: the wire is cut", &failed.message)?;
    expect(panicked.message == "Tool 'panicking' panicked: a bug in the tool", &panicked.message)?;
    Ok("a function that fails or panics returns an error; the process survives".to_owned())
}

fn validate() -> Result<String> {
    let schema = json!({"properties": {"user": {
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "mail": {"format": "email"}},
    }}});
    let verdict = validate_input(&json!({"user": {"mail": "no-address"}}), &schema);
    let expected = ["$.user.id: required field missing", "$.user.mail: string is not a valid email"];
    expect(verdict.errors == expected, format_args!("{verdict:?}"))?;
    Ok("validation reports all violations at once: $.user.id, $.user.mail".to_owned())
}

fn refuse_chain(registry: &ToolRegistry) -> Result<String> {
    let verdict = ToolChain::new(registry)
        .add_step(ChainStep::new("fahrenheit").map("celsius", "celsius").output_key("degrees"))
        .add_step(ChainStep::new("describe").map("degrees", "degrees.value"))
        .validate();
    let expected = "Step 1: input 'degrees': 'degrees.value' can never be in the context.";
    expect(verdict.errors == [expected], format_args!("{verdict:?}"))?;
    Ok("an invalid chain is rejected before its first step".to_owned())
}
