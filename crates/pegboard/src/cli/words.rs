//! Numbers, names and marks as people read them.

use std::time::Duration;

use serde_json::Value;

/// Light on a terminal; taken out everywhere else, and where nobody wants colours.
pub(crate) const DIM: &str = "\u{1b}[2m";
/// Stands out.
pub(crate) const BOLD: &str = "\u{1b}[1m";
/// Well.
pub(crate) const GREEN: &str = "\u{1b}[32m";
/// Wrong.
pub(crate) const RED: &str = "\u{1b}[31m";
/// As everything else.
pub(crate) const PLAIN: &str = "\u{1b}[0m";

/// How long something took: `412 ms`, `1.8 s`, `3 min 20 s`.
pub(crate) fn took(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
        3_600_000..86_400_000 => format!("{} h {} min", millis / 3_600_000, millis % 3_600_000 / 60_000),
        _ => format!("{} d {} h", millis / 86_400_000, millis % 86_400_000 / 3_600_000),
    }
}

/// A number of milliseconds that somebody told, with a fraction or without.
pub(crate) fn millis(told: &Value) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number that is too large is told as the largest"
    )]
    told.as_f64().map_or(0, |millis| millis.round() as u64)
}

/// How much something is: `312 B`, `9.8 kB`, `1.2 MB`.
pub(crate) fn size(bytes: u64) -> String {
    let tenths = |unit: u64, name: &str| {
        let tenths = bytes.saturating_mul(10) / unit;
        if tenths >= 1_000 {
            format!("{} {name}", tenths / 10)
        } else {
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
    };
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => tenths(1_000, "kB"),
        1_000_000..1_000_000_000 => tenths(1_000_000, "MB"),
        _ => tenths(1_000_000_000, "GB"),
    }
}

/// A number of things: `1 tool`, `3 tools`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{s}")
}

/// How long somebody has waited, in whole seconds.
pub(crate) fn seconds(waited: Duration) -> String {
    match waited.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => took(seconds * 1_000),
    }
}

/// A text of somebody else, on one line, without anything that a terminal would obey, and not too long.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_cut = words.chars().count() > most;
    let shown = words.chars().take(if is_cut { most.saturating_sub(1) } else { most });
    shown.filter(|each| !each.is_control()).chain(is_cut.then_some('…')).collect()
}

/// A text of somebody else without anything that a terminal would obey, but for lines and tabs.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|each| !each.is_control() || matches!(each, '\n' | '\t')).collect()
}

/// How many characters of a text are seen: colours are none.
pub(crate) fn length(text: &str) -> usize {
    let mut n_seen = 0;
    let mut is_colour = false;
    for each in text.chars() {
        match (is_colour, each) {
            (false, '\u{1b}') => is_colour = true,
            (true, 'm') => is_colour = false,
            (true, _) => {}
            (false, _) => n_seen += 1,
        }
    }
    n_seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_as_people_read_them() {
        let times = [0, 999, 1_000, 1_850, 60_000, 3_725_000, 90_000_000].map(took);
        assert_eq!(times, ["0 ms", "999 ms", "1.0 s", "1.8 s", "1 min 0 s", "1 h 2 min", "1 d 1 h"]);
        let sizes = [0, 999, 1_000, 9_849, 123_456, 2_000_000, 3_210_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "9.8 kB", "123 kB", "2.0 MB", "3.2 GB"]);
    }

    #[test]
    fn texts_of_others_command_no_terminal() {
        assert_eq!(one_line("a\u{1b}[2J\n  b\tc", 80), "a[2J b c");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(harmless("a\u{7}\n\tb\r"), "a\n\tb");
    }
}
