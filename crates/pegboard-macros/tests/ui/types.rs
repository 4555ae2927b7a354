#![allow(unused)]

use std::borrow::Cow;
use std::path::Path;

use pegboard::error::Result;
use pegboard::tools;
use pegboard_macros::tool;
use serde::Serialize;

/// References.
#[tool]
fn references(text: &str, items: &[u8], file: &Path, count: &u8, maybe: Option<&str>, cow: Cow<'_, str>) {}

/// Unnamed parameters.
#[tool]
fn unnamed(text: impl Into<String>, items: Vec<impl Copy>) {}

/// An unnamed answer.
#[tool]
fn unnamed_answer() -> Result<impl Serialize> {
    Ok(7)
}

/// An answer that is not said.
#[tool]
fn silent() -> std::fmt::Result {
    Ok(())
}

fn main() {
    let _ = tools![references, unnamed, unnamed_answer, silent];
}
