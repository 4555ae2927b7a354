use pegboard::tools;
use pegboard_macros::tool;

#[tool]
fn undescribed() {}

///
#[tool]
fn described_by_an_empty_comment() {}

#[tool(description = "")]
fn described_by_an_empty_text() {}

fn main() {
    let _ = tools![undescribed, described_by_an_empty_comment, described_by_an_empty_text];
}
