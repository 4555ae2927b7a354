//! Paged queries over stored outputs.

use pegboard_runtime::output_query::{
    Case, Grep, GrepPattern, InvalidOutputRequest, JsonPath, OutputPage, OutputRequest, OutputStats,
    OutputView, PageCursor, ReadError, SearchWords, WorkBudget, chunks, read, read_within, select,
    select_one, truncate_middle,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn page(body: impl AsRef<[u8]>, view: &OutputView, max_bytes: usize) -> OutputPage {
    read(body.as_ref(), "text/plain", view, max_bytes).unwrap()
}

fn text(body: impl AsRef<[u8]>, view: &OutputView) -> String {
    page(body, view, 4_096).text
}

/// Returns every page of a view, checking that each respects the limit.
fn pages(body: &[u8], view: OutputView, max_bytes: usize) -> Vec<OutputPage> {
    let mut pages = Vec::new();
    let mut view = Some(view);
    while let Some(current) = view {
        let page = read(body, "text/plain", &current, max_bytes).unwrap();
        assert!(page.text.len() <= max_bytes, "{} bytes", page.text.len());
        // Cursors pass through a model as text.
        view = page.next.as_ref().map(|cursor| OutputView::Next(cursor.to_string().parse().unwrap()));
        pages.push(page);
        assert!(pages.len() <= body.len() + 1, "reading on must come to an end");
    }
    pages
}

fn contents(body: &[u8], view: OutputView, max_bytes: usize) -> String {
    pages(body, view, max_bytes).iter().map(OutputPage::content).collect()
}

fn grep(pattern: &str, context: usize, max_matches: usize) -> OutputView {
    OutputView::Grep(Grep::new(GrepPattern::new(pattern, Case::Sensitive).unwrap(), context, max_matches))
}

fn search(query: &str) -> OutputView {
    OutputView::Search(SearchWords::new(query).unwrap())
}

fn json_path(path: &str) -> OutputView {
    OutputView::JsonPath(JsonPath::parse(path).unwrap())
}

const EVERYTHING: OutputView = OutputView::Lines { from: 1, to: None };

fn numbered(n_lines: usize) -> String {
    (1..=n_lines).flat_map(|number| ["line ".to_owned(), number.to_string(), "\n".to_owned()]).collect()
}

// Size.

#[test]
fn an_output_is_counted_in_bytes_lines_and_tokens() {
    for (body, n_bytes, n_lines, n_tokens) in [
        (&b""[..], 0, 0, 0),
        (b"a", 1, 1, 1),
        (b"a\n", 2, 2, 1),
        (b"a\nbcd", 5, 2, 2),
        ("éééé".as_bytes(), 8, 1, 1),
        (b"\xff\xfe\xfd\xfc\n", 5, 2, 2),
    ] {
        assert_eq!(OutputStats::of(body), OutputStats { n_bytes, n_lines, n_tokens }, "{body:?}");
    }
    assert_eq!(OutputStats::of(b"").average_line_bytes(), 0);
    assert_eq!(OutputStats::of(b"1234\n1234\n12").average_line_bytes(), 4);
}

#[test]
fn stats_describe_the_output_and_the_next_step() {
    let check = |body: &[u8], content_type| read(body, content_type, &OutputView::Stats, 4_096).unwrap().text;
    insta::assert_snapshot!(check(b"one\ntwo", "text/plain"), @r#"7 bytes, 2 lines, about 2 tokens, content type "text/plain""#);
    insta::assert_snapshot!(check(br#"{"items": [1, 2], "total": 2, "more": {"a": null}, "ok": true, "s": "x"}"#, "application/json"), @r#"
    72 bytes, 1 line, about 18 tokens, content type "application/json"
    JSON object with 5 keys: "items" (array of 2), "total" (number), "more" (object, 1 key), "ok" (boolean), "s" (string)
    Read parts of it with {"mode":"jsonpath","path":"$.items"}
    "#);
    insta::assert_snapshot!(check(br#" [{"a": 1}, 2]"#, "application/json"), @r#"
    14 bytes, 1 line, about 4 tokens, content type "application/json"
    JSON array with 2 items, the first one: object, 1 key
    Read parts of it with {"mode":"jsonpath","path":"$[0]"}
    "#);
    insta::assert_snapshot!(check(b"[]", "application/json"), @r#"
    2 bytes, 1 line, about 1 token, content type "application/json"
    JSON array with 0 items
    "#);
    insta::assert_snapshot!(check(br#"{"odd key": 1}"#, "application/json"), @r#"
    14 bytes, 1 line, about 4 tokens, content type "application/json"
    JSON object with 1 key: "odd key" (number)
    Read parts of it with {"mode":"jsonpath","path":"$[*]"}
    "#);
    insta::assert_snapshot!(check(b"\x89PNG\xff", "image/png"), @r#"
    5 bytes, 1 line, about 2 tokens, content type "image/png"
    It is not UTF-8 text, so it cannot be read by lines.
    "#);
    insta::assert_snapshot!(check(&[b'x'; 5_000], "text/plain"), @r#"
    5000 bytes, 1 line, about 1250 tokens, content type "text/plain"
    A line has 5000 bytes on average.
    "#);
}

#[test]
fn the_keys_of_a_wide_object_are_not_all_listed() {
    let members: Vec<String> = (0..60).map(|number| format!("\"k{number}\":0")).collect();
    let body = format!("{{{}}}", members.join(","));
    let stats = text(&body, &OutputView::Stats);
    assert!(stats.contains("JSON object with 60 keys") && stats.contains("\"k49\" (number), …"), "{stats}");
    assert!(!stats.contains("k50"));
    assert!(page(&body, &OutputView::Stats, 512).text.len() <= 512);
}

#[test]
fn the_shape_of_a_deeply_nested_document_needs_no_stack() {
    let body = "[".repeat(200_000) + &"]".repeat(200_000);
    assert!(text(&body, &OutputView::Stats).contains("JSON array with 1 item"));
}

// Lines.

#[test]
fn lines_are_read_from_either_end_and_from_the_middle() {
    let check = |body: &str, view: OutputView, expected: &str| {
        assert_eq!(page(body, &view, 512).content(), expected, "{view:?} of {body:?}");
    };
    let lines = |from, to| OutputView::Lines { from, to };
    let body = "a\nb\nc\n";
    check(body, OutputView::Head { n_lines: 2 }, "a\nb\n");
    check(body, OutputView::Head { n_lines: 0 }, "");
    check(body, OutputView::Head { n_lines: usize::MAX }, body);
    check(body, OutputView::Tail { n_lines: 1 }, "c\n");
    check(body, OutputView::Tail { n_lines: 2 }, "b\nc\n");
    check(body, OutputView::Tail { n_lines: 0 }, "");
    check(body, OutputView::Tail { n_lines: usize::MAX }, body);
    check("a\nb", OutputView::Tail { n_lines: 1 }, "b");
    check("\n\n", OutputView::Tail { n_lines: 1 }, "\n");
    check(body, lines(2, Some(2)), "b\n");
    check(body, lines(2, None), "b\nc\n");
    check(body, lines(0, Some(1)), "a\n");
    check(body, lines(3, Some(1)), "");
    check(body, lines(9, Some(usize::MAX)), "");
    check("", EVERYTHING, "");
    check("é\r\nü", lines(2, None), "ü");
}

#[test]
fn an_empty_page_says_so() {
    let empty = page("a\n", &OutputView::Lines { from: 7, to: None }, 512);
    let note = "There is nothing to read here; the output has 2 lines.";
    assert_eq!((empty.text.as_str(), empty.content()), (note, ""));
}

#[test]
fn a_partial_page_ends_with_a_continuation_note() {
    let page = page(numbered(100), &EVERYTHING, 512);
    insta::assert_snapshot!(page.text.lines().rev().take(2).collect::<Vec<_>>().join("\n"), @r#"
    … 57 more lines; continue with {"mode":"next","cursor":"bytes:335-792"} and the same handle
    line 43
    "#);
}

#[test]
fn a_line_that_does_not_fit_continues_on_the_next_page() {
    let body = format!("{}\nlast\n", "é".repeat(400));
    let pages = pages(body.as_bytes(), EVERYTHING, 512);
    insta::assert_snapshot!(pages[0].text.lines().last().unwrap(), @r#"… line 1 goes on, then 1 more line; continue with {"mode":"next","cursor":"bytes:340-806"} and the same handle"#);
    assert_eq!(pages.iter().map(OutputPage::content).collect::<String>(), body);
    let page = page("x".repeat(2_000), &EVERYTHING, 512);
    insta::assert_snapshot!(page.text.lines().last().unwrap(), @r#"… line 1 goes on; continue with {"mode":"next","cursor":"bytes:339-2000"} and the same handle"#);
}

#[test]
fn one_remaining_line_is_counted_as_one() {
    let body = "x".repeat(300) + "\n" + &"y".repeat(300);
    assert!(page(body, &EVERYTHING, 512).text.contains("… 1 more line; "));
}

#[test]
fn a_text_that_just_fits_is_not_truncated() {
    let body = "x".repeat(512);
    let page = page(&body, &EVERYTHING, 512);
    assert_eq!((page.text, page.next), (body, None));
}

#[test]
fn binary_output_has_no_lines() {
    let body = b"\xff\xd8\xff\xe0";
    for view in
        [EVERYTHING, OutputView::Head { n_lines: 1 }, OutputView::Truncate, grep("x", 0, 1), search("x")]
    {
        let error = read(body, "image/jpeg", &view, 512).unwrap_err();
        let expected =
            "the output is not UTF-8 text: 4 bytes of content type \"image/jpeg\"; only stats can be read";
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_view_that_needs_a_model_is_refused() {
    let view = OutputView::ReadGrep { extract: "the price".to_owned() };
    let error = read(b"", "text/plain", &view, 512).unwrap_err();
    assert_eq!(error, ReadError::NeedsModel { mode: "read-grep" });
}

#[test]
fn a_truncated_view_keeps_both_ends() {
    let text = page(numbered(1_000), &OutputView::Truncate, 600).text;
    assert!(text.len() <= 600 && text.starts_with("line 1\n") && text.ends_with("line 1000\n"), "{text}");
}

// Grep.

const LOG: &str = "start\nopen a\nERROR a\nclose a\nidle\nidle\nidle\nopen b\nerror b\nend\n";

#[test]
fn matches_are_shown_with_line_numbers_and_context() {
    insta::assert_snapshot!(text(LOG, &grep("ERROR|error", 0, 10)), @"
    3: ERROR a
    9: error b
    ");
    insta::assert_snapshot!(text(LOG, &grep("ERROR|error", 1, 10)), @"
    2- open a
    3: ERROR a
    4- close a
    --
    8- open b
    9: error b
    10- end
    ");
    insta::assert_snapshot!(text(LOG, &grep("open|ERROR", 2, 10)), @"
    1- start
    2: open a
    3: ERROR a
    4- close a
    5- idle
    6- idle
    7- idle
    8: open b
    9- error b
    10- end
    ");
    insta::assert_snapshot!(text(LOG, &grep("^$", 0, 10)), @"No line matches the pattern.");
    let pattern = GrepPattern::new("error [b-z]", Case::Insensitive).unwrap();
    insta::assert_snapshot!(text(LOG, &OutputView::Grep(Grep::new(pattern, 0, 1))), @"9: error b");
}

#[test]
fn matches_beyond_the_limit_are_on_the_next_page() {
    let found = page(LOG, &grep("idle", 1, 2), 512);
    insta::assert_snapshot!(found.text, @r#"
    4- close a
    5: idle
    6: idle
    … more matches follow; continue with {"mode":"next","cursor":"grep:39:0:1:2:case:idle"} and the same handle
    "#);
    insta::assert_snapshot!(text(LOG, &OutputView::Next(found.next.unwrap())), @"
    7: idle
    8- open b
    ");
    assert_eq!(page(LOG, &grep("idle", 0, 3), 512).next, None);
}

#[test]
fn a_crlf_line_ending_does_not_hide_a_match() {
    assert_eq!(page("a\r\nb\r\n", &grep("^b$", 0, 1), 512).content(), "2: b\n");
}

#[test]
fn every_match_in_a_giant_line_is_shown_with_its_surroundings() {
    let body = format!("{}needle one{}needle two{}", "é".repeat(3_000), "ü".repeat(3_000), "x".repeat(3_000));
    let found = page(&body, &grep("needle (one|two)", 0, 10), 4_096);
    let lines: Vec<&str> = found.content().lines().collect();
    assert_eq!(lines.len(), 2);
    for (line, needle) in lines.iter().zip(["éneedle oneü", "üneedle two"]) {
        assert!(line.starts_with("1: …") && line.ends_with('…') && line.contains(needle), "{line}");
        assert!(line.chars().count() < 450);
    }
}

#[test]
fn a_match_that_is_the_whole_giant_line_is_shown_once() {
    let found = page("x".repeat(100_000), &grep(".*", 0, 10), 4_096);
    assert!(found.content().len() < 1_000 && found.content().lines().count() == 1);
    assert_eq!(found.next, None);
}

#[test]
fn all_matches_in_a_giant_line_appear_on_some_page() {
    let gap = ".".repeat(700);
    let body: String = (0..300).flat_map(|number| [format!("<{number}>"), gap.clone()]).collect();
    let seen = contents(body.as_bytes(), grep("<\\d+>", 0, 1_000), 2_048);
    for number in 0..300 {
        assert!(seen.contains(&format!("<{number}>")), "{number}");
    }
}

#[test]
fn an_invalid_pattern_is_explained() {
    let refused = |pattern: &str| GrepPattern::new(pattern, Case::Sensitive).unwrap_err().to_string();
    insta::assert_snapshot!(refused("a(b"), @"
    `pattern` is not a valid regular expression: regex parse error:
        a(b
         ^
    error: unclosed group
    ");
    insta::assert_snapshot!(refused("(a{1000}){1000}"), @"`pattern` is too large when compiled; simplify it");
    let nested = refused(&("(".repeat(99) + &")".repeat(99)));
    assert!(nested.contains("exceed the maximum number of nested parentheses/brackets"), "{nested}");
    insta::assert_snapshot!(refused(&"a".repeat(513)), @"`pattern` is longer than 512 bytes");
}

#[test]
fn a_page_that_cannot_hold_its_cursor_says_so() {
    let pattern = format!("line|{}", "\"".repeat(400));
    let found = page(numbered(500), &grep(&pattern, 0, 1_000), 512);
    assert!(found.text.len() <= 512 && found.next.is_some());
    assert!(found.text.ends_with("… more matches follow; narrow the query"), "{}", found.text);
}

// Search.

#[test]
fn the_line_with_the_rarest_and_most_words_comes_first() {
    let body = "the cat\nthe dog\nthe bird and the cat\nnothing\nThe DOG and the bird\n";
    insta::assert_snapshot!(text(body, &search("the dog bird")), @"
    5: The DOG and the bird
    2: the dog
    3: the bird and the cat
    1: the cat
    ");
    insta::assert_snapshot!(text(body, &search("CAT")), @"
    1: the cat
    3: the bird and the cat
    ");
    insta::assert_snapshot!(text(body, &search("fish (")), @"No lines have any of these words.");
}

#[test]
fn a_search_continues_where_it_stopped() {
    let body = numbered(200);
    let seen = contents(body.as_bytes(), search("line"), 512);
    assert_eq!(seen.lines().count(), 200);
    assert!(seen.starts_with("1: line 1\n2: line 2\n") && seen.ends_with("200: line 200\n"));
    let first = page(&body, &search("line"), 512);
    insta::assert_snapshot!(first.text.lines().last().unwrap(), @r#"… 171 more lines; continue with {"mode":"next","cursor":"search:29:line"} and the same handle"#);
}

#[test]
fn words_are_found_within_a_giant_line() {
    let body = format!("{} needle {}", "hay ".repeat(5_000), "hay ".repeat(5_000));
    let found = page(&body, &search("needle"), 512);
    assert!(found.content().starts_with("1: …") && found.content().contains("needle"), "{}", found.text);
}

#[test]
fn a_query_needs_words_but_not_too_many() {
    assert_eq!(SearchWords::new(" \n").unwrap_err().to_string(), "`query` has no words");
    let many: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    let expected = "`query` is longer than 256 bytes or has more than 16 words";
    assert_eq!(SearchWords::new(&many.join(" ")).unwrap_err().to_string(), expected);
    assert_eq!(SearchWords::new(&"x".repeat(257)).unwrap_err().to_string(), expected);
    assert!(SearchWords::new(&"same ".repeat(20)).is_ok());
}

// JSON paths.

#[test]
fn a_path_selects_values_in_document_order() {
    let document = json!({
        "items": [{"id": 1, "tags": ["x"]}, {"id": 2}, {"id": 3, "deep": {"id": 4}}],
        "odd.name": "dotted", "it's": "quoted", "é😀": "accented", "$": "dollar", "@type": "typed"
    });
    let body = document.to_string();
    let check = |path: &str, expected: Value| {
        let found = match select(body.as_bytes(), &JsonPath::parse(path).unwrap()) {
            Err(ReadError::NoMatch { .. }) => Vec::new(),
            found => found.unwrap(),
        };
        assert_eq!(Value::Array(found), expected, "{path}");
    };
    check("$", json!([document]));
    check("$.items[0].id", json!([1]));
    check("items[0].id", json!([1]));
    check(".items[0].id", json!([1]));
    check("$['items'][0][\"id\"]", json!([1]));
    check("$.items[-1].id", json!([3]));
    check("$.items[-4]", json!([]));
    check("$.items[3]", json!([]));
    check("$.items[*].id", json!([1, 2, 3]));
    check("$.items.*.id", json!([1, 2, 3]));
    check("$.items[1:].id", json!([2, 3]));
    check("$.items[:-1].id", json!([1, 2]));
    check("$.items[::2].id", json!([1, 3]));
    check("$.items[::-1].id", json!([3, 2, 1]));
    check("$.items[1::-1].id", json!([2, 1]));
    check("$.items[:0:-1].id", json!([3, 2]));
    check("$.items[-1:-3:-1].id", json!([3, 2]));
    check("$.items[-9:9].id", json!([1, 2, 3]));
    check("$.items[2:1]", json!([]));
    check("$.items[::0]", json!([]));
    check("$.items[ 0 , 2 ].id", json!([1, 3]));
    check("$..id", json!([1, 2, 3, 4]));
    check("$..[0]", json!([{"id": 1, "tags": ["x"]}, "x"]));
    check("$.items..id", json!([1, 2, 3, 4]));
    check("..deep", json!([{"id": 4}]));
    check("$['odd.name', 'it\\'s']", json!(["dotted", "quoted"]));
    check("$['\\u00e9\\ud83d\\ude00']", json!(["accented"]));
    check("é😀", json!(["accented"]));
    check("$['$']", json!(["dollar"]));
    check("@type", json!(["typed"]));
    check("$.items.0", json!([]));
    check("$.nothing", json!([]));
    check(".", json!([document]));
}

#[test]
fn an_invalid_path_is_explained() {
    let check = |path: &str, expected: &str| {
        assert_eq!(JsonPath::parse(path).unwrap_err().to_string(), expected, "{path}");
    };
    let at = |at: usize, problem: &str| format!("invalid path at byte {at}: {problem}");
    let name = "a name or * must follow, as in .name; a name with other characters is written ['like this']";
    let selector = "a bracket holds an index, a slice, * or a quoted name, as in [0], [1:3], [*] or ['name']";
    let escape = "after a backslash one of \\ / ' \" b f n r t or u with four hex digits must follow";
    check("", &at(0, name));
    check("$.", &at(2, name));
    check("$...a", &at(3, name));
    check("$.a b", &at(4, "a step must follow, as in .name or [0]"));
    check("$[", &at(2, selector));
    check("$[]", &at(2, selector));
    check("$[-]", &at(2, selector));
    check("$[a]", &at(2, selector));
    check("$[0", &at(3, "a comma or ] must follow"));
    check("$['a", &at(4, "unterminated quoted name"));
    check("$['\\x']", &at(4, escape));
    check("$['\\u12']", &at(4, escape));
    check("$['\\ud800']", &at(9, escape));
    check("$['\\ué😀']", &at(4, escape));
    check("$[99999999999999999999]", &at(2, "this number is too large"));
    check("$[?@.a == 1]", &at(2, "filters are not supported; select more, or use grep"));
    check(&".a".repeat(300), "the path is longer than 512 bytes");
}

#[test]
fn one_match_is_returned_bare_and_several_as_a_list() {
    let body = br#"{"a": [1, 2], "b": 12345678901234567890}"#;
    let one = |path: &str| select_one(body, &JsonPath::parse(path).unwrap());
    assert_eq!(one("a").unwrap(), json!([1, 2]));
    assert_eq!(one("a[*]").unwrap(), json!([1, 2]));
    assert_eq!(one("a[0]").unwrap(), json!(1));
    assert_eq!(one("b").unwrap(), json!(12_345_678_901_234_567_890_u64));
    let error = one("$.c").unwrap_err().to_string();
    assert_eq!(error, "no match for the path \"$.c\"; use stats to list the structure");
}

#[test]
fn a_path_into_a_non_json_output_is_refused() {
    let refused =
        |body: &str| read(body.as_bytes(), "text/plain", &json_path("$"), 512).unwrap_err().to_string();
    insta::assert_snapshot!(refused("plain text"), @"the output is not a JSON document: expected value at line 1 column 1; read it with lines, grep or search");
    insta::assert_snapshot!(refused(&"[".repeat(100_000)), @"the output is not a JSON document: recursion limit exceeded at line 1 column 128; read it with lines, grep or search");
    insta::assert_snapshot!(refused(""), @"the output is not a JSON document: EOF while parsing a value at line 1 column 0; read it with lines, grep or search");
}

#[test]
fn a_path_that_multiplies_its_matches_is_stopped() {
    let body = "[".repeat(120) + &"[1],".repeat(5_000) + "1" + &"]".repeat(120);
    for path in ["$..*..*..*..*..*", "$..[*,*,*,*]..[*,*,*,*]", "$..*"] {
        let error = select(body.as_bytes(), &JsonPath::parse(path).unwrap()).unwrap_err();
        assert_eq!(error, ReadError::TooManyMatches { path: format!("{path:?}") });
    }
}

#[test]
fn values_are_formatted_for_reading() {
    let body = json!({"items": [{"a": 1}, [2]], "text": "two\nlines", "none": {}, "n": 1.5}).to_string();
    insta::assert_snapshot!(text(&body, &json_path("$")), @r#"
    {
    "items": [{"a":1},[2]],
    "text": "two\nlines",
    "none": {},
    "n": 1.5
    }
    "#);
    insta::assert_snapshot!(text(&body, &json_path("$.items")), @r#"
    [
    {"a":1},
    [2]
    ]
    "#);
    insta::assert_snapshot!(text(&body, &json_path("$.items[*]")), @r#"
    {"a":1}
    [2]
    "#);
    insta::assert_snapshot!(text(&body, &json_path("$.text")), @"
    two
    lines
    ");
    insta::assert_snapshot!(text(&body, &json_path("$.none")), @"{}");
}

#[test]
fn values_that_do_not_fit_continue_on_the_next_page() {
    let items: Vec<Value> = (0..200).map(|id| json!({"id": id, "name": "é".repeat(id % 7)})).collect();
    let long = "x".repeat(3_000);
    let body = json!({"items": items, "long": [long, long]}).to_string();
    let read_all = |path: &str| contents(body.as_bytes(), json_path(path), 512);
    assert_eq!(serde_json::from_str::<Value>(&read_all("$.items")).unwrap(), json!(items));
    let lines = read_all("$.items[*]");
    assert!(lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).eq(items));
    assert_eq!(read_all("$.long[0]"), long);
    assert_eq!(read_all("$.long[*]"), format!("{long:?}\n{long:?}\n"));
    insta::assert_snapshot!(page(&body, &json_path("$.items[*]"), 512).text.lines().last().unwrap(), @r#"… 187 more values; continue with {"mode":"next","cursor":"jsonpath:13:0:$.items[*]"} and the same handle"#);
    insta::assert_snapshot!(page(&body, &json_path("$.long[*]"), 512).text.lines().last().unwrap(), @r#"… the value goes on, then 1 more value; continue with {"mode":"next","cursor":"jsonpath:0:328:$.long[*]"} and the same handle"#);
}

// Requests.

#[test]
fn a_request_names_an_output_and_a_view() {
    let check = |mut arguments: Value, view: OutputView| {
        arguments["handle"] = json!("h");
        let expected = OutputRequest { handle: "h".to_owned(), view };
        assert_eq!(OutputRequest::parse(&arguments), Ok(expected), "{arguments}");
    };
    let extract = || "the price".to_owned();
    check(json!({"extract": "the price"}), OutputView::Auto { extract: extract() });
    check(
        json!({"extract": "the price", "mode": "full-chunked"}),
        OutputView::FullChunked { extract: extract() },
    );
    check(json!({"extract": "the price", "mode": "read-grep"}), OutputView::ReadGrep { extract: extract() });
    check(json!({"mode": "truncate", "extract": "ignored"}), OutputView::Truncate);
    check(json!({"mode": "stats", "lines": null, "extract": null}), OutputView::Stats);
    check(json!({"mode": "head", "lines": 3}), OutputView::Head { n_lines: 3 });
    check(json!({"mode": "tail", "lines": 3.0}), OutputView::Tail { n_lines: 3 });
    check(json!({"mode": "lines", "from": 2}), OutputView::Lines { from: 2, to: None });
    check(json!({"mode": "lines", "from": 2, "to": 2}), OutputView::Lines { from: 2, to: Some(2) });
    check(json!({"mode": "grep", "pattern": "a.b"}), grep("a.b", 0, 100));
    let pattern = GrepPattern::new("a", Case::Insensitive).unwrap();
    check(
        json!({"mode": "grep", "pattern": "a", "ignoreCase": true, "context": 2, "maxMatches": 5}),
        OutputView::Grep(Grep::new(pattern, 2, 5)),
    );
    check(json!({"mode": "search", "query": "a b"}), search("a b"));
    check(json!({"mode": "jsonpath", "path": "a[0]"}), json_path("a[0]"));
    check(json!({"mode": "next", "cursor": "bytes:1-2"}), OutputView::Next("bytes:1-2".parse().unwrap()));
}

#[test]
fn a_request_without_handle_or_extract_is_refused_with_the_documented_message() {
    for arguments in [
        json!({}),
        json!(null),
        json!([]),
        json!({"handle": "h"}),
        json!({"handle": "h", "extract": " "}),
        json!({"handle": "h", "extract": 1, "mode": "read-grep"}),
        json!({"handle": "", "extract": "e"}),
        json!({"extract": "e"}),
        json!({"mode": "stats"}),
    ] {
        let error = OutputRequest::parse(&arguments).unwrap_err();
        assert_eq!(error, InvalidOutputRequest::HandleAndExtract, "{arguments}");
        assert_eq!(error.to_string(), "Invalid tool_output parameters: handle and extract are required.");
    }
}

#[test]
fn an_invalid_request_explains_the_fix() {
    let refusals: Vec<String> = [
        json!({"mode": "first"}),
        json!({"mode": 1}),
        json!({"mode": "stats", "n".repeat(200): 1}),
        json!({"mode": "head", "pattern": "x"}),
        json!({"mode": "head"}),
        json!({"mode": "head", "lines": 0}),
        json!({"mode": "head", "lines": -1}),
        json!({"mode": "head", "lines": "ten"}),
        json!({"mode": "lines"}),
        json!({"mode": "lines", "from": 3, "to": 2}),
        json!({"mode": "grep"}),
        json!({"mode": "grep", "pattern": 3}),
        json!({"mode": "grep", "pattern": "[", "context": 1}),
        json!({"mode": "grep", "pattern": "x", "context": 51}),
        json!({"mode": "grep", "pattern": "x", "ignoreCase": "yes"}),
        json!({"mode": "search", "query": ""}),
        json!({"mode": "jsonpath", "path": "$["}),
        json!({"mode": "next"}),
        json!({"mode": "next", "cursor": "2"}),
    ]
    .into_iter()
    .map(|mut arguments| {
        arguments["handle"] = json!("h");
        OutputRequest::parse(&arguments).unwrap_err().to_string()
    })
    .collect();
    insta::assert_snapshot!(refusals.join("\n"), @r#"
    Invalid tool_output parameters: there is no mode "first"; use auto, full-chunked, read-grep, truncate, head, tail, lines, grep, search, jsonpath, stats, next.
    Invalid tool_output parameters: `mode` must be a string.
    Invalid tool_output parameters: there is no "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…"; use handle, extract, mode, lines, from, to, pattern, ignoreCase, context, maxMatches, query, path, cursor.
    Invalid tool_output parameters: mode head does not take `pattern`; it takes handle, lines.
    Invalid tool_output parameters: mode head needs `lines`.
    Invalid tool_output parameters: `lines` must be a whole number, 1 or more.
    Invalid tool_output parameters: `lines` must be a whole number, 1 or more.
    Invalid tool_output parameters: `lines` must be a whole number, 1 or more.
    Invalid tool_output parameters: mode lines needs `from`.
    Invalid tool_output parameters: `to` must be no less than `from`.
    Invalid tool_output parameters: mode grep needs `pattern`.
    Invalid tool_output parameters: `pattern` must be a string.
    Invalid tool_output parameters: `pattern` is not a valid regular expression: regex parse error:
        [
        ^
    error: unclosed character class
    Invalid tool_output parameters: `context` must be a whole number from 0 to 50.
    Invalid tool_output parameters: `ignoreCase` must be true or false.
    Invalid tool_output parameters: `query` has no words.
    Invalid tool_output parameters: invalid path at byte 2: a bracket holds an index, a slice, * or a quoted name, as in [0], [1:3], [*] or ['name'].
    Invalid tool_output parameters: mode next needs `cursor`.
    Invalid tool_output parameters: `cursor` must be copied verbatim from the previous page.
    "#);
}

#[test]
fn the_schema_of_a_request_names_every_parameter() {
    let schema = OutputRequest::input_schema();
    assert_eq!(schema["required"], json!(["handle"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    let properties: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    insta::assert_snapshot!(format!("{properties:?} {}", schema["properties"]["mode"]), @r#"["handle", "extract", "mode", "lines", "from", "to", "pattern", "ignoreCase", "context", "maxMatches", "query", "path", "cursor"] {"type":"string","enum":["auto","full-chunked","read-grep","truncate","head","tail","lines","grep","search","jsonpath","stats","next"],"default":"auto","description":"How to read. stats: size and shape. head, tail: the first or last `lines`. lines: `from` to `to`. grep: lines that match `pattern`. search: the best lines for `query`. jsonpath: the values at `path`. next: the page after `cursor`. truncate: beginning and end. auto, full-chunked, read-grep: a model finds `extract`."}"#);
}

// Cursors.

#[test]
fn a_cursor_round_trips() {
    for text in [
        "bytes:0-18",
        "grep:12:1:2:100:case:a:b|c",
        "grep:0:0:0:1:nocase:",
        "search:10:two words: here",
        "jsonpath:0:512:$['a:b']",
    ] {
        assert_eq!(text.parse::<PageCursor>().unwrap().to_string(), text);
    }
}

#[test]
fn an_invalid_cursor_is_refused() {
    for text in [
        "",
        ":",
        "bytes",
        "bytes:",
        "bytes:1",
        "bytes:-1-2",
        "bytes:1-99999999999999999999999",
        "lines:3",
        "grep:1:2:3",
        "grep:0:0:0:1:maybe:x",
        "grep:0:0:0:1:case:(",
        "search:1:",
        "search:x:y",
        "jsonpath:0:0:$[",
    ] {
        assert!(text.parse::<PageCursor>().is_err(), "{text}");
    }
    assert!(format!("search:1:{}", "x ".repeat(10_000)).parse::<PageCursor>().is_err());
}

#[test]
fn a_forged_cursor_reads_some_part_or_nothing() {
    let body = "é😀\n".repeat(50) + "needle";
    let most = usize::MAX;
    for cursor in [
        format!("bytes:{most}-{most}"),
        format!("bytes:0-{most}"),
        "bytes:9-3".to_owned(),
        "bytes:1-5".to_owned(),
        format!("grep:{most}:{most}:{most}:{most}:case:needle"),
        "grep:1:0:0:0:case:needle".to_owned(),
        format!("search:{most}:needle"),
    ] {
        let found = page(&body, &OutputView::Next(cursor.parse().unwrap()), 512);
        assert!(found.text.len() <= 512 && body.len() >= found.content().len(), "{cursor}");
    }
    let past = format!("jsonpath:{most}:{most}:$").parse().unwrap();
    assert_eq!(page("[1]", &OutputView::Next(past), 512).text, "There is nothing more to read.");
}

// Truncation.

#[test]
fn a_truncated_text_keeps_its_two_ends() {
    let check =
        |text: &str, target: usize, expected: &str| assert_eq!(truncate_middle(text, target), expected);
    let marked = |half: &str, n_missing: usize| format!("{half}[···TRUNCATED {n_missing} bytes···]{half}");
    check("short", 600, "short");
    check(&"x".repeat(600), 600, &"x".repeat(600));
    check(&"x".repeat(1_000), 600, &marked(&"x".repeat(275), 450));
    check(&"é".repeat(600), 600, &marked(&"é".repeat(137), 1_200 - 4 * 137));
    check(&"x".repeat(400), 300, &"x".repeat(300));
    check(&"é".repeat(200), 301, &"é".repeat(150));
    check(&"x".repeat(1_000), 51, &"x".repeat(51));
    check(&"x".repeat(1_000), 0, "");
    assert_eq!(truncate_middle(&"x".repeat(1_000), 600).len(), 583);
}

#[test]
fn chunks_overlap_and_the_last_one_adds_content() {
    let check = |text: &str, size: usize, overlap: u8, expected: &[&str]| {
        assert_eq!(chunks(text, size, overlap).collect::<Vec<_>>(), expected, "{text:?} {size} {overlap}");
    };
    check("abcdefghij", 4, 25, &["abcd", "defg", "ghij"]);
    check("abcdefghij", 4, 0, &["abcd", "efgh", "ij"]);
    check("abcdef", 4, 100, &["abcd", "cdef"]);
    check("abcd", 4, 50, &["abcd"]);
    check("abc", 0, 10, &["a", "b", "c"]);
    check("", 4, 25, &[]);
    check("éé", 1, 50, &["é", "é"]);
    check("aa😀b", 4, 25, &["aa", "😀", "b"]);
    check("abc", usize::MAX, 50, &["abc"]);
}

// Arbitrary input.

/// Texts of short and long lines, with characters of every width.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z é😀\r]{0,40}",
        1 => (1_usize..900).prop_map(|n| "x".repeat(n)),
        1 => (1_usize..300).prop_map(|n| "😀".repeat(n)),
        4 => Just("\n".to_owned()),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_pages_of_a_text_are_the_text(text in any_text(), max_bytes in 512_usize..2_000) {
        prop_assert_eq!(contents(text.as_bytes(), EVERYTHING, max_bytes), text.as_str());
        prop_assert_eq!(contents(text.as_bytes(), OutputView::Tail { n_lines: usize::MAX }, max_bytes), text);
    }

    #[test]
    fn every_line_that_matches_is_on_some_page(
        text in any_text(),
        context in 0_usize..4,
        max_matches in 1_usize..5,
        max_bytes in 512_usize..2_000,
    ) {
        let seen = contents(text.as_bytes(), grep("[aé]", context, max_matches), max_bytes);
        for (line, number) in text.lines().zip(1..) {
            let is_seen = seen.lines().any(|shown| shown.starts_with(&format!("{number}: ")));
            prop_assert_eq!(is_seen, line.contains(['a', 'é']), "line {}", number);
        }
    }

    #[test]
    fn context_is_the_same_on_one_page_as_on_many(lines in prop::collection::vec("[abc]{1,3}", 0..60)) {
        let body = lines.join("\n");
        let on_one = contents(body.as_bytes(), grep("a", 2, 1_000), 100_000);
        let on_many = contents(body.as_bytes(), grep("a", 2, 3), 512);
        let without_gaps = |text: &str| text.lines().filter(|line| *line != "--").map(str::to_owned).collect::<Vec<_>>();
        prop_assert_eq!(without_gaps(&on_one), without_gaps(&on_many));
    }

    #[test]
    fn every_line_with_a_word_is_found(text in any_text(), max_bytes in 512_usize..2_000) {
        let seen = contents(text.as_bytes(), search("a é"), max_bytes);
        for (line, number) in text.lines().zip(1..) {
            let is_seen = seen.lines().any(|shown| shown.starts_with(&format!("{number}: ")));
            prop_assert_eq!(is_seen, line.contains(['a', 'é']), "line {}", number);
        }
    }

    #[test]
    fn a_truncated_text_is_never_longer_than_its_target(text in any_text(), target in 0_usize..3_000) {
        let short = truncate_middle(&text, target);
        prop_assert!(short.len() <= target);
        prop_assert!(text.len() > target || short == text);
    }

    #[test]
    fn chunks_cover_the_text_and_keep_their_size(text in "[a-zé😀]{0,60}", size in 0_usize..12, overlap in 0_u8..=60) {
        let mut reached = 0;
        for chunk in chunks(&text, size, overlap) {
            let start = chunk.as_ptr() as usize - text.as_ptr() as usize;
            let end = start + chunk.len();
            prop_assert!(start <= reached && end > reached, "{start}..{end} after {reached}");
            prop_assert!(chunk.len() <= size || chunk.chars().count() == 1);
            reached = end;
        }
        prop_assert_eq!(reached, text.len());
    }

    #[test]
    fn no_request_panics(handle in ".{0,5}", mode in "auto|head|lines|grep|search|jsonpath|next|stats|.{0,5}", argument in ".{0,40}") {
        for key in ["lines", "from", "pattern", "query", "path", "cursor"] {
            let arguments = json!({"handle": handle.as_str(), "mode": mode.as_str(), key: argument.as_str()});
            if let Ok(request) = OutputRequest::parse(&arguments) {
                drop(read(argument.as_bytes(), &handle, &request.view, 0));
            }
        }
    }

    #[test]
    fn no_path_panics(path in "[$.\\[\\]*'\"a0:,\\\\u-]{0,20}") {
        if let Ok(path) = JsonPath::parse(&path) {
            drop(select(br#"{"a": [0, {"a": [[1]]}], "u": {"0": null}}"#, &path));
        }
    }

    #[test]
    fn no_cursor_panics(kind in "bytes|grep|search|jsonpath", rest in "[0-9:\\-a.$\\[]{0,30}|(\\d{1,4}:){1,5}(case:)?a") {
        if let Ok(cursor) = format!("{kind}:{rest}").parse() {
            drop(read("[\"é😀a\"]\na".as_bytes(), "text/plain", &OutputView::Next(cursor), 0));
        }
    }
}

#[test]
fn ordinary_patterns_are_accepted_and_huge_ones_refused() {
    let ordinary = [
        r"ERROR|WARN|fatal",
        r"\bfoo\d+\b",
        r"(?i)error.*timeout",
        r"\w+@\w+\.\w+",
        r"^\s*at .*:\d+$",
        r"[A-Za-z_][A-Za-z0-9_]*\(",
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}",
        "é+",
        r"(a|b|c){1,20}",
    ];
    for pattern in ordinary {
        assert!(GrepPattern::new(pattern, Case::Sensitive).is_ok(), "{pattern}");
        assert!(GrepPattern::new(pattern, Case::Insensitive).is_ok(), "{pattern}");
    }
    for pattern in [r"(?:[ab]{1,200}){1,200}c", r"[ab]*a[ab]{90000}c", r"(?:\w{1,50}){1,50}"] {
        assert_eq!(
            GrepPattern::new(pattern, Case::Sensitive).unwrap_err().to_string(),
            "`pattern` is too large when compiled; simplify it"
        );
    }
}

#[test]
fn matches_are_found_wherever_they_are_in_a_line_of_any_length() {
    let check = |pattern: &str, text: &str, expected: usize| {
        let grep = Grep::new(GrepPattern::new(pattern, Case::Sensitive).unwrap(), 0, 1_000);
        let mut view = OutputView::Grep(grep);
        let mut n_found = 0;
        loop {
            let page = read(text.as_bytes(), "text/plain", &view, 4_000).unwrap();
            n_found += page.content().matches("needle").count();
            match page.next {
                Some(next) => view = OutputView::Next(next),
                None => break,
            }
        }
        assert_eq!(n_found, expected, "{pattern} in {} bytes", text.len());
    };
    for n_before in [0, 1, 16_380, 16_384, 16_390, 20_000, 100_000] {
        let text = format!("{}needle{}", "x".repeat(n_before), "y".repeat(50_000));
        check("needle", &text, 1);
        check("x?needley{20}", &text, 1);
        check("^needle", &text, usize::from(n_before == 0));
        check("needle$", &text, 0);
        check("xneedle$", &text[..n_before + 6], usize::from(n_before > 0));
    }
    let everywhere = "é".repeat(9_000) + "needle" + &"é".repeat(9_000) + "needle";
    check("needle", &everywhere, 2);
}

#[test]
fn a_search_that_exhausts_its_budget_continues_where_it_stopped() {
    let text = "no match here\n".repeat(10_000) + "needle\n";
    let budget = WorkBudget::within(std::time::Duration::ZERO);
    let grep = Grep::new(GrepPattern::new("needle", Case::Sensitive).unwrap(), 0, 10);
    let mut view = OutputView::Grep(grep);
    let mut n_pages = 0;
    loop {
        let page = read_within(text.as_bytes(), "text/plain", &view, 1_000, &budget).unwrap();
        n_pages += 1;
        let Some(next) = page.next else {
            assert!(page.text.contains("10001: needle"), "{}", page.text);
            break;
        };
        assert!(n_pages > 1 || page.text.contains("bytes so far; continue with"), "{}", page.text);
        view = OutputView::Next(next);
    }
    assert!(n_pages > 100);
    // Dropping the guard cancels the work.
    let budget = WorkBudget::unlimited();
    drop(budget.guard());
    let first = OutputView::Grep(Grep::new(GrepPattern::new("needle", Case::Sensitive).unwrap(), 0, 10));
    assert!(read_within(text.as_bytes(), "text/plain", &first, 1_000, &budget).unwrap().next.is_some());
}

#[test]
fn a_document_too_large_to_parse_can_be_read_by_lines() {
    let body = format!("[{}1]", "1,".repeat(9 << 20));
    let path = JsonPath::parse("$[0]").unwrap();
    let error = select_one(body.as_bytes(), &path).unwrap_err().to_string();
    assert!(
        error.contains("exceeds the limit of 16777216 bytes")
            && error.ends_with("read it with lines, grep or search"),
        "{error}"
    );
}
