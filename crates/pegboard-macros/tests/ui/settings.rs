use pegboard::tools;
use pegboard_macros::tool;

/// Several mistakes are all reported.
#[tool(tag("units"), readonly, retries = 3, desc = "…")]
fn misspelt() {}

/// A setting must not be given twice.
#[tool(name = "a", read_only, name = "b", read_only = false)]
fn repeated() {}

/// A value must be of the right kind.
#[tool(
    name = 7,
    title,
    tags = "units",
    destructive = "yes",
    idempotent(true),
    input_schema,
    crate = "pegboard"
)]
fn of_the_wrong_kind() {}

/// A tag must be a text.
#[tool(tags("units", 7))]
fn tagged() {}

/// A name must not be empty.
#[tool(name = "", title = " ")]
fn empty() {}

/// A setting has a name.
#[tool("convert a temperature")]
fn nameless() {}

fn main() {
    let _ = tools![misspelt, repeated, of_the_wrong_kind, tagged, empty, nameless];
}
