#![allow(unused)]

use pegboard::tools;
use pegboard_macros::tool;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Point {
    x: f64,
}

/// All arguments and one more.
#[tool]
fn too_many(#[arguments] point: Point, scale: f64) -> f64 {
    point.x * scale
}

/// All arguments with an attribute for one.
#[tool]
fn renamed(
    #[arguments]
    #[serde(default)]
    point: Point,
) -> f64 {
    point.x
}

/// A parameter that is not always there.
#[tool]
fn conditional(#[cfg(unix)] mode: u32) {}

/// Keys that nobody has named.
#[tool]
fn flattened(#[serde(flatten)] point: Point) -> f64 {
    point.x
}

/// Two schemas.
#[tool(input_schema = json!({"type": "object"}))]
fn overruled(#[schemars(range(min = 1))] dice: u8) -> u8 {
    dice
}

fn main() {
    let _ = tools![too_many, renamed, conditional, flattened, overruled];
}
