//! Access to raw JSON, and changes of single members.

use pegboard_wire::{Malformed, RawJson};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::envelope::nested;

fn raw(text: &str) -> RawJson {
    RawJson::parse(text.to_owned().into()).expect("the text is JSON")
}

#[test]
fn json_is_accepted() {
    let texts = r#"
        0 | -0 | -1.5e+10 | 1E2 | "" | "\"\\\/\b\f\n\r\t\u00aF" | "\ud800" | null | [] | {} | [ ] | { } | [[],{}]
        | {"":[1,2]} | { "a" : [ true , false ] } | " "
    "#;
    for text in texts.split('|') {
        assert_eq!(RawJson::parse(text.into()).as_ref().map(RawJson::as_str), Ok(text.trim()));
    }
}

#[test]
fn invalid_json_is_rejected_at_its_position() {
    // The error position is in front of the exclamation mark.
    let texts = r#"
        ! | 0!1 | -! | !+1 | !.5 | 1.! | 1.!e1 | 1e! | 1e+! | "! | "!\x" | "!\u12g4" | "!\u12 | "!\ | !tru | null!l
        | [1,!] | [!,1] | [1 !2] | [1!} | {!1:2} | {"a" !1} | {"a":!} | {"a":1,!} | {"a":1!] | 1 !2 | !'a' | [1!
        | !] | !NaN | [[]!
    "#;
    for text in texts.split('|') {
        let text = text.trim();
        let at = text.find('!').expect("every text marks its error");
        assert_eq!(RawJson::parse(text.replace('!', "").into()), Err(Malformed::NotJson { at }), "{text}");
    }
    assert_eq!(RawJson::parse("\"\n\"".into()), Err(Malformed::NotJson { at: 1 }));
    assert_eq!(RawJson::parse("\u{feff}1".into()), Err(Malformed::NotJson { at: 0 }));
    assert_eq!(RawJson::parse((&b"\"\xc0\xaf\""[..]).into()), Err(Malformed::NotText));
}

#[test]
fn nesting_is_limited_to_what_serde_can_read() {
    for depth in [1, 2, 63, 64, 65, 66, 126, 127] {
        let value = raw(&nested(depth));
        assert!(value.read::<serde_json::Value>().is_ok(), "{depth}");
    }
    assert_eq!(RawJson::parse(nested(128).into()), Err(Malformed::TooDeep { limit: 127 }));
}

#[test]
fn strings_of_any_length_are_delimited_correctly() {
    // Every position that a quote, an escape or a control character can have in a block.
    for len in 0..200 {
        let plain = "é".repeat(len / 3) + &"a".repeat(len);
        for middle in ["", "\\\"", "\\\\", "\\u00e9", "\\\\\\\""] {
            let text = format!("\"{plain}{middle}{plain}\"");
            assert_eq!(raw(&format!("[{text},1]")).items().next().unwrap().as_str(), text);
        }
        for broken in ["\u{1f}", "\\x", "\\u00g0", "\\\u{e9}"] {
            let text = format!("\"{plain}{broken}{plain}\"");
            assert_eq!(RawJson::parse(text.into()), Err(Malformed::NotJson { at: plain.len() + 1 }));
        }
    }
}

#[test]
fn members_are_found_by_name() {
    let value = raw(r#"{ "a" : {"b":[1,{"c":"}"}]} , "\u0062" : "x\n" , "a":2, "":3, "n":null }"#);
    let got = |path: &[&str]| value.at(path).map(|found| found.as_str().to_owned());
    for (path, expected) in [
        (&["a"][..], Some(r#"{"b":[1,{"c":"}"}]}"#)),
        (&["a", "b"], Some(r#"[1,{"c":"}"}]"#)),
        (&["b"], Some(r#""x\n""#)),
        (&[""], Some("3")),
        (&["n"], Some("null")),
        (&["c"], None),
        (&["n", "c"], None),
        (&["\\u0062"], None),
    ] {
        assert_eq!(got(path).as_deref(), expected, "{path:?}");
    }
    assert_eq!(value.names(), ["a", "b", "a", "", "n"]);
    assert_eq!(value.get("b").unwrap().text().as_deref(), Some("x\n"));
    assert_eq!(raw("7").text(), None);
    assert_eq!(raw("[1]").get("a"), None);
}

#[test]
fn with_replaces_a_member_in_place() {
    for (before, after) in [
        ("{}", r#"{"a":[7]}"#),
        ("{ }", r#"{ "a":[7]}"#),
        ("[1]", r#"{"a":[7]}"#),
        (r#"{"b": 1e2 }"#, r#"{"b": 1e2 ,"a":[7]}"#),
        (r#"{"x":1, "a" : {"a":1} ,"y":2}"#, r#"{"x":1, "a" : [7] ,"y":2}"#),
        (r#"{"\u0061":1}"#, r#"{"\u0061":[7]}"#),
        (r#"{"a":1,"a":2, "b":3 ,"a":4 }"#, r#"{"a":[7], "b":3 }"#),
    ] {
        assert_eq!(raw(before).with("a", &RawJson::of(&[7])).as_str(), after);
    }
    assert_eq!(raw("{}").with("\"\n", &raw("1")).as_str(), r#"{"\"\n":1}"#);
}

#[test]
fn without_removes_a_member() {
    for (before, after) in [
        ("{}", "{}"),
        ("[1]", "[1]"),
        (r#"{"b":1}"#, r#"{"b":1}"#),
        (r#"{ "a":1 }"#, "{ }"),
        (r#"{"a":1 , "b": 1e2}"#, r#"{"b": 1e2}"#),
        (r#"{"b": 1e2 , "a":1 }"#, r#"{"b": 1e2 }"#),
        (r#"{"b":1, "a":{"a":1}, "c":2}"#, r#"{"b":1, "c":2}"#),
        (r#"{"a":1,"\u0061":2,"b":3,"a":4,"a":5,"c":6,"a":7}"#, r#"{"b":3,"c":6}"#),
        (r#"{"a":1,"a":2}"#, "{}"),
    ] {
        assert_eq!(raw(before).without("a").as_str(), after);
    }
}

#[test]
fn raw_json_can_be_a_field_of_serde_types() {
    #[derive(Serialize, Deserialize)]
    struct Tool {
        schema: RawJson,
    }
    let text = r#"{"schema":{"b": 1e2, "a": 12345678901234567890123}}"#;
    let tool: Tool = serde_json::from_str(text).unwrap();
    assert_eq!(tool.schema.as_str(), r#"{"b": 1e2, "a": 12345678901234567890123}"#);
    assert_eq!(serde_json::to_string(&tool).unwrap(), text);
    assert_eq!(serde_json::from_value::<Tool>(json!({"schema": [1]})).unwrap().schema.as_str(), "[1]");
}
