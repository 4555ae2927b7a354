//! Comparison of output with a page, ignoring volatile values.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Volatile values and their placeholders: times, ages, time bars, ids, ports, process ids, prompt sizes, which
/// depend on the time, and the spaces that align them.
static CHANGING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let pattern = |pattern: &str| Regex::new(pattern).expect("it is a pattern");
    vec![
        (pattern(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
        (pattern(r"\b[0-9a-f]{32}\b"), "ID"),
        (pattern(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?\b"), "DATE"),
        (pattern(r"\b(now|\d+ (s|min) ago)(,|  |$)"), "AGO "),
        (pattern(r"\b\d+(\.\d+)? ?(ns|µs|ms|s)\b"), "TIME"),
        (pattern(r"\b127\.0\.0\.1:\d+\b"), "127.0.0.1:PORT"),
        (pattern(r#""(durationMs|duration_ms|uptimeMs|sinceMs|startedInMs)": ?[\d.]+"#), "\"TIME\""),
        (pattern(r"\b1[789]\d{11}\b"), "MOMENT"),
        (pattern("[▒█░┄▚]+"), "BAR"),
        // A delay is shown only if there was one.
        (pattern(" +(overhead|starting|queued|question) TIME"), ""),
        (pattern(r"\bpid \d+\b"), "pid PID"),
        (pattern(r#""pid": ?\d+"#), "\"PID\""),
        (pattern(r"\b[0-9a-f]{8}\b"), "ID"),
        (pattern(r"\b\d+(\.\d+)?[kM]? (in|out)\b"), "SIZE"),
        (pattern(r" {2,}"), " "),
    ]
});

/// Returns `true` if the output matches. `…` or `[..]` matches anything within a line, and any number of lines if it
/// is alone on a line.
pub(crate) fn is_as_shown(shown: &str, seen: &str) -> bool {
    // Only a slow call has a reason.
    let is_reason = |line: &String| line.starts_with("TIME of TIME ");
    let steady_lines =
        |text: &str| -> Vec<String> { text.lines().map(steady).filter(|line| !is_reason(line)).collect() };
    fits(&steady_lines(shown), &steady_lines(seen))
}

fn fits(shown: &[String], seen: &[String]) -> bool {
    let Some((line, rest)) = shown.split_first() else { return seen.is_empty() };
    if is_gap(line) {
        return (0..=seen.len()).any(|n_skipped| fits(rest, &seen[n_skipped..]));
    }
    seen.split_first().is_some_and(|(first, seen)| line_fits(line, first) && fits(rest, seen))
}

fn is_gap(line: &str) -> bool {
    ["…", "...", "[..]"].contains(&line.trim())
}

fn line_fits(shown: &str, seen: &str) -> bool {
    let shown = shown.replace("[..]", "…");
    let parts: Vec<&str> = shown.split('…').collect();
    let [first, .., last] = &parts[..] else { return shown == seen };
    let Some(mut rest) = seen.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    parts[1..parts.len() - 1].iter().all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Replaces the volatile values of a line.
fn steady(line: &str) -> String {
    CHANGING.iter().fold(line.trim_end().to_owned(), |line, (pattern, word)| {
        pattern.replace_all(&line, |_: &Captures| (*word).to_owned()).into_owned()
    })
}

#[test]
fn only_volatile_values_may_differ() {
    let check = |shown: &str, seen: &str, expected: bool| {
        assert_eq!(is_as_shown(shown, seen), expected, "{shown:?} {seen:?}");
    };
    check("a\nb", "a\nb", true);
    check("a\nb", "a\nc", false);
    check("a\nb", "a", false);
    check("a  1.5 ms", "a     20 ms", true);
    check("2 tools", "3 tools", false);
    check("d52ac39d  now  ██  add", "0cdd6e40  12 s ago    ▒█████  add", true);
    check("began now, used now", "began 1 min ago, used 8 s ago", true);
    check("d52ac39d  now  add", "d52ac39d  now  rm", false);
    check(
        r#"{"createdAt":1794840522464,"durationMs":1.5}"#,
        r#"{"createdAt":1794840599999,"durationMs":20}"#,
        true,
    );
    check(r#"{"pid": 4711, "startedInMs": 88.5}"#, r#"{"pid": 12, "startedInMs": 120}"#, true);
    check(r#"{"pid": 4711}"#, "{}", false);
    check("a\n…\nd", "a\nb\nc\nd", true);
    check("a\n…\nd", "a\nb\nc", false);
    check("id [..] is … here", "id 7 is not here", true);
    check("id [..] is … here", "id 7 is not there", false);
    check("at 127.0.0.1:7332", "at 127.0.0.1:4711", true);
    check("at 127.0.0.1:7332", "at 127.0.0.2:7332", false);
}
