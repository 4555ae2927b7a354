//! Human-readable formatting of durations, sizes, counts and tables.

use std::time::Duration;

use pegboard::printable::printable;
use serde_json::Value;

use super::{print, style};

pub(crate) use super::style::{BOLD, DIM, GREEN, PLAIN, RED, YELLOW};

/// Formats a duration: `412 ms`, `1.8 s`, `3 min 20 s`.
pub(crate) fn format_millis(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
        3_600_000..86_400_000 => format!("{} h {} min", millis / 3_600_000, millis % 3_600_000 / 60_000),
        _ => format!("{} d {} h", millis / 86_400_000, millis % 86_400_000 / 3_600_000),
    }
}

/// Rounds a JSON number of milliseconds.
pub(crate) fn json_millis(value: &Value) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    value.as_f64().map_or(0, |millis| millis.round() as u64)
}

/// Formats the age of a timestamp: `now`, `4 min ago`, `2 d ago`. Both arguments are in milliseconds.
pub(crate) fn ago(now: u64, then: u64) -> String {
    let seconds = now.saturating_sub(then) / 1_000;
    match seconds {
        0..5 => "now".to_owned(),
        5..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// Current time in milliseconds since the Unix epoch.
pub(crate) fn now_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Formats a size: `312 B`, `9.8 kB`, `1.2 MB`.
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

/// Formats a count with its noun: `1 tool`, `3 tools`.
pub(crate) fn plural(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{s}")
}

/// Formats an elapsed time in whole seconds.
pub(crate) fn seconds(waited: Duration) -> String {
    match waited.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format_millis(seconds * 1_000),
    }
}

/// Puts untrusted text on one line, printable, with at most `max` characters.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = printable(&words);
    let is_cut = words.chars().count() > max;
    let shown = words.chars().take(if is_cut { max.saturating_sub(1) } else { max });
    shown.chain(is_cut.then_some('…')).collect()
}

/// Width that is left for the last column; below it the cell is put on lines of its own.
const MIN_LAST_WIDTH: usize = 24;
/// Width below which no column is cut.
const MIN_CUT_WIDTH: usize = 12;

/// Aligns rows in columns that fit the terminal: the last cell of a row may have any length and is wrapped, the widest of
/// the others are cut, except for the first, which names the row.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    columns_within(rows, print::width())
}

fn columns_within(rows: &[Vec<String>], terminal_width: Option<usize>) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| column + 1 < row.len()).map(|row| visible_width(&row[column]));
        cells.max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = (0..n_columns).map(width).collect();
    if let (Some(most), [first, others @ ..]) = (terminal_width, widths.as_mut_slice()) {
        narrow(others, most.saturating_sub(MIN_LAST_WIDTH + *first + 2));
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = if column + 1 < row.len() { cut(cell, *width) } else { cell.clone() };
            line.extend([cell.as_str()]);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(visible_width(&cell)) + 2));
        }
        let line = line.trim_end();
        let start: usize = widths.iter().take(row.len().saturating_sub(1)).map(|width| width + 2).sum();
        match terminal_width {
            Some(most) if visible_width(line) > most && start + MIN_LAST_WIDTH <= most => {
                text.push_str(&wrapped(line, most, &" ".repeat(start)));
            }
            Some(most) if visible_width(line) > most => text.push_str(&wrapped(line, most, "    ")),
            Some(_) | None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Narrows the widest columns until all of them, with the space behind each, fit into `most`.
fn narrow(widths: &mut [usize], most: usize) {
    loop {
        let total: usize = widths.iter().filter(|width| **width > 0).map(|width| width + 2).sum();
        let Some(widest) = widths.iter_mut().max().filter(|widest| total > most && **widest > MIN_CUT_WIDTH)
        else {
            return;
        };
        *widest -= 1;
    }
}

/// Cuts a cell to a width. Of a path the end is kept, which tells more. A cell with styles loses them.
fn cut(cell: &str, width: usize) -> String {
    if visible_width(cell) <= width {
        return cell.to_owned();
    }
    let plain: Vec<char> = style::segments(cell).flat_map(|(_, text)| text.chars()).collect();
    let kept = width.saturating_sub(1);
    if plain.contains(&'/') {
        std::iter::once('…').chain(plain[plain.len() - kept..].iter().copied()).collect()
    } else {
        plain[..kept].iter().copied().chain(['…']).collect()
    }
}

/// Makes the quoted lines of a file, and the carets below them with their message, fit the terminal. Everything else is
/// left to the terminal to wrap, so that commands can be copied.
pub(crate) fn fit_quotes(diagnostics: &str, terminal_width: Option<usize>) -> String {
    let Some(most) = terminal_width else { return diagnostics.to_owned() };
    let mut lines = diagnostics.split('\n').peekable();
    let mut fitted = Vec::new();
    while let Some(line) = lines.next() {
        match lines.next_if(|carets| is_quoted(line) && carets.trim_start().starts_with("| ")) {
            Some(carets) => fit_quote(line, carets, most, &mut fitted),
            None => fitted.push(line.to_owned()),
        }
    }
    fitted.join("\n")
}

/// Makes a quoted line and its carets fit, so that the first caret is visible.
fn fit_quote(line: &str, carets: &str, most: usize, fitted: &mut Vec<String>) {
    let color = style::segments(carets).find_map(|(style, _)| style);
    let plain = color.map_or(String::new(), |_| PLAIN.to_string());
    let color = color.map_or(String::new(), |color| color.to_string());
    let carets: String = style::segments(carets).map(|(_, text)| text).collect();
    let gutter = carets.find("| ").map_or(0, |at| at + 2);
    let (Some(marked), Some(body)) = (carets.get(gutter..), line.get(gutter..)) else {
        fitted.extend([line.to_owned(), carets]);
        return;
    };
    let room = most.saturating_sub(gutter).max(MIN_CUT_WIDTH);
    let start = marked.chars().take_while(|letter| *letter == ' ').count();
    let n_carets = marked.chars().skip(start).take_while(|letter| *letter == '^').count();
    let message: String = marked.chars().skip(start + n_carets).collect();
    let shift = if start + n_carets.min(room / 2) < room { 0 } else { start - room / 3 };
    let shown: String = if shift == 0 {
        body.to_owned()
    } else {
        std::iter::once('…').chain(body.chars().skip(shift + 1)).collect()
    };
    fitted.push(format!("{}{}", &line[..gutter], cut_end(&shown, room)));
    let start = start - shift;
    let marks = format!("{}{color}{}", " ".repeat(start), "^".repeat(n_carets.min(room - start)));
    let bar = &carets[..gutter];
    if start + n_carets + message.chars().count() <= room {
        fitted.push(format!("{bar}{marks}{message}{plain}"));
        return;
    }
    fitted.push(format!("{bar}{marks}{plain}"));
    let words = wrapped(&format!("{bar}{}", message.trim_start()), most, bar);
    fitted.extend(words.split('\n').map(|line| match line.strip_prefix(bar) {
        Some(words) => format!("{bar}{color}{words}{plain}"),
        None => line.to_owned(),
    }));
}

fn cut_end(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Wraps the lines that do not fit the terminal. Lines of a tree keep its branches, and quoted lines of a file their
/// columns.
pub(crate) fn fit(text: &str, terminal_width: Option<usize>) -> String {
    let Some(most) = terminal_width else { return text.to_owned() };
    let text = fit_quotes(text, terminal_width);
    let fitted = text.split('\n').map(|line| {
        if visible_width(line) <= most || is_quoted(line) {
            return line.to_owned();
        }
        let is_branch = |letter: &char| " │├└".contains(*letter);
        let branches = line.chars().take_while(is_branch);
        let indent: String = branches.map(|letter| if "│├".contains(letter) { '│' } else { ' ' }).collect();
        wrapped(line, most, &format!("{indent}    "))
    });
    fitted.collect::<Vec<_>>().join("\n")
}

/// Wraps a line that does not fit the terminal; later lines begin with `n_spaces` spaces.
pub(crate) fn hanging(line: &str, n_spaces: usize) -> String {
    match print::width() {
        Some(most) if visible_width(line) > most => wrapped(line, most, &" ".repeat(n_spaces)),
        Some(_) | None => line.to_owned(),
    }
}

/// Returns `true` for a line of a file, or the carets below it.
fn is_quoted(line: &str) -> bool {
    let number = line.split_once(" | ").map(|(number, _)| number.trim());
    number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Wraps a line at spaces; later lines begin with `indent`. A longer word is broken.
fn wrapped(line: &str, most: usize, indent: &str) -> String {
    let most = most.max(visible_width(indent) + 8);
    let mut lines = vec![String::new()];
    let (mut width, mut is_begun) = (0, false);
    for part in line.split_inclusive(' ') {
        let n_word = visible_width(part.trim_end_matches(' '));
        if is_begun && width + n_word > most {
            lines.push(indent.to_owned());
            (width, is_begun) = (visible_width(indent), false);
        }
        if width + n_word > most {
            for (style, text) in style::segments(part) {
                if let Some(style) = style {
                    lines.last_mut().expect("there is one").push_str(&style.to_string());
                }
                for letter in text.chars() {
                    if width >= most {
                        lines.push(indent.to_owned());
                        width = visible_width(indent);
                    }
                    lines.last_mut().expect("there is one").push(letter);
                    width += 1;
                }
            }
        } else {
            lines.last_mut().expect("there is one").push_str(part);
            width += visible_width(part);
        }
        is_begun |= n_word > 0;
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Colors the lines of a unified diff.
pub(crate) fn diff(diff: &str) -> String {
    let colored = diff.split('\n').map(|line| {
        let style = match line.chars().next() {
            Some('+') if !line.starts_with("+++ ") => GREEN,
            Some('-') if !line.starts_with("--- ") => RED,
            Some('+' | '-') => BOLD,
            Some('@' | '\\') => DIM,
            Some(_) | None => return line.to_owned(),
        };
        format!("{style}{line}{PLAIN}")
    });
    colored.collect::<Vec<_>>().join("\n")
}

/// Number of characters that are printed; styles are not counted.
pub(crate) fn visible_width(text: &str) -> usize {
    style::segments(text).map(|(_, text)| printable(text).chars().count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_humans() {
        let times = [0, 999, 1_000, 1_850, 60_000, 3_725_000, 90_000_000].map(format_millis);
        assert_eq!(times, ["0 ms", "999 ms", "1.0 s", "1.8 s", "1 min 0 s", "1 h 2 min", "1 d 1 h"]);
        let sizes = [0, 999, 1_000, 9_849, 123_456, 2_000_000, 3_210_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "9.8 kB", "123 kB", "2.0 MB", "3.2 GB"]);
        let times =
            [0, 30, 120, 7_200, 172_800].map(|seconds| ago(1_000_000_000, 1_000_000_000 - seconds * 1_000));
        assert_eq!(times, ["now", "30 s ago", "2 min ago", "2 h ago", "2 d ago"]);
    }

    #[test]
    fn columns_align_regardless_of_color_codes() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        let rows = [
            row(&["a", &format!("{RED}bad{PLAIN}"), "x"]),
            row(&["long", "ok", "yy"]),
            row(&["only, and very long"]),
        ];
        let expected = format!("a     {RED}bad{PLAIN}  x\nlong  ok   yy\nonly, and very long\n");
        assert_eq!(columns(&rows), expected);
    }

    #[test]
    fn tables_fit_the_terminal() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<String>>();
        let rows = [
            row(&["SOURCE", "NAME"]),
            row(&["cursor", "files", "new, needs: A_LONG_VARIABLE, stays in cursor"]),
            row(&["/a/very/long/path/of/a/file/that/is/broken", "x", "new"]),
        ];
        let narrow = columns_within(&rows[..2], Some(44));
        insta::assert_snapshot!(narrow, @"
        SOURCE  NAME
        cursor  files  new, needs: A_LONG_VARIABLE,
                       stays in cursor
        ");
        let wide = [
            row(&[
                "cursor",
                "github.com/modelcontextprotocol/servers/tree/main/src/everything",
                "stdio  new",
            ]),
            row(&["claude-desktop", "files", "stdio  new, needs: A_LONG_VARIABLE, stays in claude-desktop"]),
            row(&["vscode", "a-name-that-has-no-path-but-is-long", "http"]),
        ];
        insta::assert_snapshot!(columns_within(&wide, Some(60)), @"
        cursor          …in/src/everything  stdio  new
        claude-desktop  files               stdio  new, needs:
                                            A_LONG_VARIABLE, stays
                                            in claude-desktop
        vscode          a-name-that-has-n…  http
        ");
        for most in [44, 60, 80] {
            for text in [columns_within(&rows, Some(most)), columns_within(&wide, Some(most))] {
                assert!(text.lines().all(|line| visible_width(line) <= most), "{most}: {text}");
            }
        }
    }

    #[test]
    fn quoted_lines_keep_the_place_that_carets_mark() {
        let short =
            "error: a.yaml:3:1\n  3 | servers: []\n    | ^^^^^^^ did you mean mcpServers?\n  help: rename it";
        assert_eq!(fit_quotes(short, Some(40)), short);
        insta::assert_snapshot!(fit_quotes(short, Some(24)), @"
        error: a.yaml:3:1
          3 | servers: []
            | ^^^^^^^
            | did you mean
            | mcpServers?
          help: rename it
        ");
        // A color stays on the carets and their message.
        let colored = short
            .replace("^^^^^^^ did", &format!("{YELLOW}^^^^^^^ did"))
            .replace("Servers?", &format!("Servers?{PLAIN}"));
        let fitted = fit_quotes(&colored, Some(24));
        assert_eq!(
            anstream::adapter::strip_str(&style::render(&fitted)).to_string(),
            fit_quotes(short, Some(24))
        );
        assert!(style::render(&fitted).contains("    | \u{1b}[33mdid you mean\u{1b}[0m"), "{fitted:?}");
        let start = "long: ".repeat(20);
        let long =
            format!("  3 | {start}servers: [], more: values\n    | {}^^^^^^^ no", " ".repeat(start.len()));
        insta::assert_snapshot!(fit_quotes(&long, Some(40)), @"
          3 | …ng: long: servers: [], more: val…
            |            ^^^^^^^ no
        ");
    }

    #[test]
    fn trees_and_diagnostics_keep_their_shape() {
        let text = "├ ✗ files\n│   it exited with 127 and this long reason\n└ ✓ b\n   1 | a long line of a file stays as it is";
        insta::assert_snapshot!(fit(text, Some(24)), @"
        ├ ✗ files
        │   it exited with 127
        │       and this long
        │       reason
        └ ✓ b
           1 | a long line of a file stays as it is
        ");
        assert_eq!(fit(text, None), text);
    }

    #[test]
    fn diffs_are_colored_and_fit_the_terminal() {
        let text = "--- a\n+++ a\n@@ -1 +1 @@\n same\n-old\n+0123456789012345678901234567890\n\\ No newline";
        let colored = diff(text);
        let expected = [
            format!("{BOLD}--- a{PLAIN}"),
            format!("{BOLD}+++ a{PLAIN}"),
            format!("{DIM}@@ -1 +1 @@{PLAIN}"),
            " same".to_owned(),
            format!("{RED}-old{PLAIN}"),
            format!("{GREEN}+0123456789012345678901234567890{PLAIN}"),
            format!("{DIM}\\ No newline{PLAIN}"),
        ];
        assert_eq!(colored, expected.join("\n"));
        let line = fit(&expected[5], Some(8)).replace("\n    ", "");
        assert_eq!(line, expected[5]);
    }

    #[test]
    fn untrusted_text_is_put_on_one_line() {
        assert_eq!(one_line("a\u{1b}[2J\n  b\tc", 80), "a␛[2J b c");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(visible_width("a\u{1b}[31mb"), "a␛[31mb".chars().count());
    }
}
