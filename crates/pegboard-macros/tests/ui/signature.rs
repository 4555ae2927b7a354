#![allow(unused)]

use pegboard::tools;
use pegboard_macros::tool;

struct Clock;

impl Clock {
    /// A method.
    #[tool]
    fn now(&self) -> u64 {
        0
    }
}

/// Generic.
#[tool]
fn generic<T, const N: usize>(item: T) -> T {
    item
}

/// With a lifetime.
#[tool]
fn borrowing<'a>(text: &'a str) -> usize {
    text.len()
}

/// Unsafe.
#[tool]
unsafe fn dangerous() {}

/// For C.
#[tool]
extern "C" fn foreign() {}

/// Constant.
#[tool]
const fn fixed() -> u8 {
    7
}

/// With patterns.
#[tool]
fn taken_apart((x, y): (f64, f64), _: bool) -> f64 {
    x + y
}

/// Not a function.
#[tool]
struct Settings {
    verbose: bool,
}

fn main() {
    let _ = tools![generic, borrowing, dangerous, foreign, fixed, taken_apart];
}
