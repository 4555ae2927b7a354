//! Edits preserve everything else in a file.

use std::path::Path;

use pegboard_config::edit::{ConfigDocument, EditError, EditPath};
use serde_json::{Value, json};

/// An edit to apply.
enum TestEdit {
    Set(EditPath, Value),
    Append(EditPath, Value),
    Remove(EditPath),
}

fn set(keys: &[&str], value: Value) -> TestEdit {
    TestEdit::Set(EditPath::from_keys(keys.iter().copied()), value)
}

fn append(keys: &[&str], value: Value) -> TestEdit {
    TestEdit::Append(EditPath::from_keys(keys.iter().copied()), value)
}

fn remove(keys: &[&str]) -> TestEdit {
    TestEdit::Remove(EditPath::from_keys(keys.iter().copied()))
}

fn edited(name: &str, text: &str, change: &TestEdit) -> Result<String, EditError> {
    let mut document = ConfigDocument::new(Path::new(name), text.to_owned()).unwrap();
    match change {
        TestEdit::Set(key_path, value) => document.set(key_path, value)?,
        TestEdit::Append(key_path, value) => document.append(key_path, value)?,
        TestEdit::Remove(key_path) => drop(document.remove(key_path)?),
    }
    Ok(document.text())
}

/// Applies an edit with both kinds of line endings, and with and without the last one.
#[track_caller]
fn check(name: &str, text: &str, change: &TestEdit, expected: &str) {
    assert_eq!(edited(name, text, change).unwrap(), expected);
    let windows = |text: &str| text.replace('\n', "\r\n");
    if text.contains('\n') {
        assert_eq!(edited(name, &windows(text), change).unwrap(), windows(expected));
    }
    let marked = format!("\u{feff}{text}");
    assert_eq!(edited(name, &marked, change).unwrap(), format!("\u{feff}{expected}"));
    if let (Some(text), Some(expected)) = (text.strip_suffix('\n'), expected.strip_suffix('\n'))
        && text.contains('\n')
    {
        assert_eq!(edited(name, text, change).unwrap(), expected);
    }
}

/// Returns the error of an edit.
fn edit_error(name: &str, text: &str, change: &TestEdit) -> String {
    edited(name, text, change).unwrap_err().to_string()
}

#[test]
fn a_member_is_added_to_json_in_the_existing_style() {
    let server = || json!({"command": "npx", "args": ["-y", "it"]});
    check(
        "mcp.json",
        "{\n    // All of mine\n    \"mcpServers\": {\n        \"a\": {\"command\": \"a\"} // first\n        // \"b\": {}\n    },\n    \"other\": 1\n}\n",
        &set(&["mcpServers", "new"], server()),
        "{\n    // All of mine\n    \"mcpServers\": {\n        \"a\": {\"command\": \"a\"}, // first\n        \"new\": {\n            \"command\": \"npx\",\n            \"args\": [\"-y\", \"it\"]\n        }\n        // \"b\": {}\n    },\n    \"other\": 1\n}\n",
    );
    check(
        "mcp.json",
        "{\n\t\"mcpServers\": {\n\t\t\"a\": {},\n\t},\n}\n",
        &set(&["mcpServers", "new"], server()),
        "{\n\t\"mcpServers\": {\n\t\t\"a\": {},\n\t\t\"new\": {\n\t\t\t\"command\": \"npx\",\n\t\t\t\"args\": [\"-y\", \"it\"]\n\t\t},\n\t},\n}\n",
    );
    let short = || json!({"url": "u"});
    check(
        "m.json",
        r#"{"mcpServers":{"a":{}}}"#,
        &set(&["mcpServers", "b"], short()),
        r#"{"mcpServers":{"a":{},"b":{"url":"u"}}}"#,
    );
    check(
        "m.json",
        r#"{"mcpServers": {"a": {}}}"#,
        &set(&["mcpServers", "b"], short()),
        r#"{"mcpServers": {"a": {}, "b": {"url": "u"}}}"#,
    );
    check(
        "m.json",
        r#"{"mcpServers": {"a": 1,}}"#,
        &set(&["mcpServers", "b"], json!(2)),
        r#"{"mcpServers": {"a": 1, "b": 2,}}"#,
    );
    check(
        "m.json",
        "{}\n",
        &set(&["mcpServers", "b"], short()),
        "{\n  \"mcpServers\": {\n    \"b\": {\n      \"url\": \"u\"\n    }\n  }\n}\n",
    );
    check("m.json", "{\n  // nothing\n}\n", &set(&["a"], json!(1)), "{\n  // nothing\n  \"a\": 1\n}\n");
    check(
        "m.json",
        "{\n  \"a\": null\n}\n",
        &set(&["a", "b"], json!(1)),
        "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n",
    );
}

#[test]
fn an_empty_file_gets_its_first_value() {
    let value = || json!({"a": 1});
    check("m.json", "", &set(&["x"], value()), "{\n  \"x\": {\n    \"a\": 1\n  }\n}\n");
    check("m.yaml", "", &set(&["x"], value()), "x:\n  a: 1\n");
    check("m.toml", "", &set(&["x"], value()), "[x]\na = 1\n");
    check("m.yaml", "# Mine\n", &set(&["x"], value()), "# Mine\nx:\n  a: 1\n");
    check("m.toml", "# Mine\n", &set(&["x"], value()), "# Mine\n\n[x]\na = 1\n");
}

#[test]
fn removing_from_json_removes_commas_and_comments() {
    let text = "{\n  // one\n  \"a\": 1, // yes\n\n  // two\n  /* more */\n  \"b\": {\n    \"x\": 2\n  },\n  \"c\": 3\n  // end\n}\n";
    check(
        "m.json",
        text,
        &remove(&["a"]),
        "{\n  // two\n  /* more */\n  \"b\": {\n    \"x\": 2\n  },\n  \"c\": 3\n  // end\n}\n",
    );
    check("m.json", text, &remove(&["b"]), "{\n  // one\n  \"a\": 1, // yes\n\n  \"c\": 3\n  // end\n}\n");
    check(
        "m.json",
        text,
        &remove(&["c"]),
        "{\n  // one\n  \"a\": 1, // yes\n\n  // two\n  /* more */\n  \"b\": {\n    \"x\": 2\n  }\n  // end\n}\n",
    );
    check(
        "m.json",
        text,
        &remove(&["b", "x"]),
        "{\n  // one\n  \"a\": 1, // yes\n\n  // two\n  /* more */\n  \"b\": {},\n  \"c\": 3\n  // end\n}\n",
    );
    let line = r#"{"a": 1, /* b */ "b": 2, "c": [1, 2, 3]}"#;
    check("m.json", line, &remove(&["a"]), r#"{/* b */ "b": 2, "c": [1, 2, 3]}"#);
    check("m.json", line, &remove(&["b"]), r#"{"a": 1, /* b */ "c": [1, 2, 3]}"#);
    check("m.json", line, &remove(&["c"]), r#"{"a": 1, /* b */ "b": 2}"#);
    check(
        "m.json",
        line,
        &TestEdit::Remove(EditPath::from_keys(["c"]).index(1)),
        r#"{"a": 1, /* b */ "b": 2, "c": [1, 3]}"#,
    );
    check("m.json", r#"{"a": {"x": 1,}}"#, &remove(&["a", "x"]), r#"{"a": {}}"#);
    check("m.json", r#"{"a": 1, "b": 2,}"#, &remove(&["b"]), r#"{"a": 1,}"#);
}

#[test]
fn only_the_value_is_replaced() {
    check(
        "m.json",
        "{\n  \"a\": false, // off\n  \"b\": 1\n}\n",
        &set(&["a"], json!(true)),
        "{\n  \"a\": true, // off\n  \"b\": 1\n}\n",
    );
    check("m.yaml", "a: false # off\nb: 'x'\n", &set(&["a"], json!(true)), "a: true # off\nb: 'x'\n");
    check("m.toml", "a = false # off\nb = 'x'\n", &set(&["a"], json!(true)), "a = true # off\nb = 'x'\n");
    check("m.yaml", "a: # none\nb: 1\n", &set(&["a"], json!("x")), "a: x # none\nb: 1\n");
    check("m.yaml", "a: 1 # one\nb: 1\n", &set(&["a"], json!({"x": 1})), "a: # one\n  x: 1\nb: 1\n");
    check("m.yaml", "a: # one\n  x: 1\n  y: 2\nb: 1\n", &set(&["a"], json!(3)), "a: 3 # one\nb: 1\n");
    check(
        "m.yaml",
        "a: # one\n    x: 1\nb: 1\n",
        &set(&["a"], json!({"z": {"w": 1}})),
        "a: # one\n    z:\n        w: 1\nb: 1\n",
    );
    check("m.yaml", "a:\n- 1\nb: 1\n", &set(&["a"], json!({"z": 1})), "a:\n  z: 1\nb: 1\n");
    check(
        "m.toml",
        "[a.x]\nk = 1\n\n[a.x.env]\nA = 1\n\n[b]\n",
        &set(&["a", "x"], json!({"u": 2})),
        "[a.x]\nu = 2\n\n[b]\n",
    );
}

#[test]
fn a_member_is_added_to_yaml_in_the_existing_style() {
    let server = || json!({"command": "npx", "args": ["-y", "@x/it"], "env": {"A": "on", "B": "${B}"}});
    check(
        "pegboard.yaml",
        "# Mine\nmcpServers:\n    a: # first\n        command: a # yes\n\n    # Files\n    b: {command: b}\n\n# The rest\ntoolTimeout: 30s\n",
        &set(&["mcpServers", "new"], server()),
        "# Mine\nmcpServers:\n    a: # first\n        command: a # yes\n\n    # Files\n    b: {command: b}\n    new:\n        command: npx\n        args: [-y, \"@x/it\"]\n        env:\n            A: \"on\"\n            B: ${B}\n\n# The rest\ntoolTimeout: 30s\n",
    );
    check(
        "p.yaml",
        "mcpServers: {a: {}, b: {}}\n",
        &set(&["mcpServers", "c"], json!({"url": "http://x:1/?a=b"})),
        "mcpServers: {a: {}, b: {}, c: {url: \"http://x:1/?a=b\"}}\n",
    );
    check(
        "p.yaml",
        "mcpServers: {} # none\nx: 1\n",
        &set(&["mcpServers", "c"], json!({"url": "u"})),
        "mcpServers: # none\n  c:\n    url: u\nx: 1\n",
    );
    check(
        "p.yaml",
        "mcpServers:\n# none yet\nx: 1\n",
        &set(&["mcpServers", "c"], json!({"url": "u"})),
        "mcpServers:\n  c:\n    url: u\n# none yet\nx: 1\n",
    );
    check(
        "p.yaml",
        "a:\n  t: |\n    one\n\n    two\nb: 1\n",
        &set(&["a", "c"], json!(1)),
        "a:\n  t: |\n    one\n\n    two\n  c: 1\nb: 1\n",
    );
    check("p.yaml", "{}\n", &set(&["a", "c"], json!(1)), "a:\n  c: 1\n");
    check("p.yaml", "---\na: 1\n...\n", &set(&["b"], json!(1)), "---\na: 1\nb: 1\n...\n");
}

#[test]
fn removing_from_yaml_removes_lines_and_comments() {
    let text = "# The file\n\n# one\na: 1 # yes\n\n# two\nb:\n  x: 2\n\nc:\n  - 1\n  - 2\n# end\n";
    check("p.yaml", text, &remove(&["a"]), "# The file\n\n# two\nb:\n  x: 2\n\nc:\n  - 1\n  - 2\n# end\n");
    check("p.yaml", text, &remove(&["b"]), "# The file\n\n# one\na: 1 # yes\n\nc:\n  - 1\n  - 2\n# end\n");
    check(
        "p.yaml",
        text,
        &remove(&["b", "x"]),
        "# The file\n\n# one\na: 1 # yes\n\n# two\nb: {}\n\nc:\n  - 1\n  - 2\n# end\n",
    );
    check(
        "p.yaml",
        text,
        &TestEdit::Remove(EditPath::from_keys(["c"]).index(0)),
        "# The file\n\n# one\na: 1 # yes\n\n# two\nb:\n  x: 2\n\nc:\n  - 2\n# end\n",
    );
    check("p.yaml", "a: 1\n\nb: 2\n", &remove(&["b"]), "a: 1\n");
    check("p.yaml", "# schema\na: 1\nb: 2\n", &remove(&["a"]), "# schema\nb: 2\n");
    check(
        "p.yaml",
        "l:\n  - name: x\n    v: 1\n  - name: y\n",
        &TestEdit::Remove(EditPath::from_keys(["l"]).named("x").key("name")),
        "l:\n  - v: 1\n  - name: y\n",
    );
    check(
        "p.yaml",
        "l:\n- name: x\n  v: 1\n- name: y\n",
        &TestEdit::Remove(EditPath::from_keys(["l"]).named("x")),
        "l:\n- name: y\n",
    );
    check(
        "p.yaml",
        "l:\n- name: x\n  v: 1\n",
        &TestEdit::Remove(EditPath::from_keys(["l"]).named("x")),
        "l: []\n",
    );
}

#[test]
fn items_are_appended_to_lists() {
    check("m.yaml", "l:\n-\n- b\n", &append(&["l"], json!("x")), "l:\n-\n- b\n- x\n");
    check("m.yaml", "l:\n-\n- b\n", &TestEdit::Remove(EditPath::from_keys(["l"]).index(0)), "l:\n- b\n");
    check(
        "m.yaml",
        "l:\n-\n- b\n",
        &TestEdit::Set(EditPath::from_keys(["l"]).index(0), json!("x")),
        "l:\n- x\n- b\n",
    );
    check(
        "m.yaml",
        "l:\n- - 1\n  - 2\n-\n",
        &TestEdit::Set(EditPath::from_keys(["l"]).index(1), json!("x")),
        "l:\n- - 1\n  - 2\n- x\n",
    );
    check("m.json", "{\"l\": [1]}", &append(&["l"], json!("x")), "{\"l\": [1, \"x\"]}");
    check(
        "m.json",
        "{\n  \"l\": [\n    1 // one\n  ]\n}\n",
        &append(&["l"], json!(2)),
        "{\n  \"l\": [\n    1, // one\n    2\n  ]\n}\n",
    );
    check("m.json", "{\"l\": []}", &append(&["l"], json!({"a": 1})), "{\"l\": [{\"a\": 1}]}");
    check(
        "m.yaml",
        "l:\n- a # one\n# two\nx: 1\n",
        &append(&["l"], json!({"name": "x", "v": [1]})),
        "l:\n- a # one\n- name: x\n  v: [1]\n# two\nx: 1\n",
    );
    check("m.yaml", "l: [a, b]\n", &append(&["l"], json!("c, d")), "l: [a, b, \"c, d\"]\n");
    check("m.yaml", "x: 1\n", &append(&["l"], json!("c")), "x: 1\nl: [c]\n");
    check("m.toml", "l = [\n  1, # one\n]\n", &append(&["l"], json!(2)), "l = [\n  1, # one\n  2,\n]\n");
    check("m.toml", "l = []\n", &append(&["l"], json!("a")), "l = [\"a\"]\n");
    check("m.toml", "[a]\n", &append(&["l"], json!("a")), "l = [\"a\"]\n\n[a]\n");
    let key_path = || EditPath::from_keys(["mcpServers"]).named("w");
    check(
        "m.yaml",
        "mcpServers:\n  - name: x\n",
        &TestEdit::Set(key_path(), json!({"name": "w", "url": "u"})),
        "mcpServers:\n  - name: x\n  - name: w\n    url: u\n",
    );
    check(
        "m.yaml",
        "mcpServers:\n  - name: w # old\n  - name: x\n",
        &TestEdit::Set(key_path().key("url"), json!("u")),
        "mcpServers:\n  - name: w # old\n    url: u\n  - name: x\n",
    );
}

#[test]
fn a_section_is_added_to_toml_beside_similar_ones() {
    let server = || json!({"command": "npx", "args": ["-y"], "env": {"A": "1"}});
    check(
        "config.toml",
        "model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = 'a'\n\n# Looks\n[tui]\ntheme = 1\n",
        &set(&["mcp_servers", "new"], server()),
        "model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = 'a'\n\n[mcp_servers.new]\ncommand = \"npx\"\nargs = [\"-y\"]\nenv = { A = \"1\" }\n\n# Looks\n[tui]\ntheme = 1\n",
    );
    check(
        "c.toml",
        "a = 1\n",
        &set(&["mcp_servers", "x y"], json!({"url": "u"})),
        "a = 1\n\n[mcp_servers.\"x y\"]\nurl = \"u\"\n",
    );
    check(
        "c.toml",
        "[s]\na = { url = \"u\" }\n",
        &set(&["s", "b"], json!({"url": "v"})),
        "[s]\na = { url = \"u\" }\nb = { url = \"v\" }\n",
    );
    check(
        "c.toml",
        "s.a.url = \"u\"\n[t]\n",
        &set(&["s", "b"], json!({"url": "v"})),
        "s.a.url = \"u\"\ns.b = { url = \"v\" }\n[t]\n",
    );
    check(
        "c.toml",
        "[s.a]\nx = 1\n\n[t]\n",
        &set(&["s", "a", "y"], json!(2)),
        "[s.a]\nx = 1\ny = 2\n\n[t]\n",
    );
    check(
        "c.toml",
        "[s.a]\nx = { k = 1 }\n",
        &set(&["s", "a", "x", "l"], json!(2)),
        "[s.a]\nx = { k = 1, l = 2 }\n",
    );
    check(
        "c.toml",
        "# top\n\n# of s\n[s.a]\nx = 1\n",
        &set(&["s", "on"], json!(true)),
        "# top\n\n[s]\non = true\n\n# of s\n[s.a]\nx = 1\n",
    );
    check("c.toml", "[s.a]\nx = {}\n", &set(&["s", "a", "x", "l"], json!(2)), "[s.a]\nx = { l = 2 }\n");
}

#[test]
fn removing_a_toml_section_removes_its_subsections() {
    let text = "model = 1\n\n# A\n[s.a]\nx = 1\n\n[s.a.env]\nA = 1\n\n# T\n[t]\nv = 1\n";
    check("c.toml", text, &remove(&["s", "a"]), "model = 1\n\n# T\n[t]\nv = 1\n");
    check("c.toml", text, &remove(&["s"]), "model = 1\n\n# T\n[t]\nv = 1\n");
    check("c.toml", text, &remove(&["t"]), "model = 1\n\n# A\n[s.a]\nx = 1\n\n[s.a.env]\nA = 1\n");
    check("c.toml", text, &remove(&["model"]), "# A\n[s.a]\nx = 1\n\n[s.a.env]\nA = 1\n\n# T\n[t]\nv = 1\n");
    check(
        "c.toml",
        "[s]\na = { x = 1, y = 2 } # one\nb.c = 1\nb.d = 2\n",
        &remove(&["s", "b"]),
        "[s]\na = { x = 1, y = 2 } # one\n",
    );
    check(
        "c.toml",
        "[s]\na = { x = 1, y = 2 } # one\n",
        &remove(&["s", "a", "y"]),
        "[s]\na = { x = 1 } # one\n",
    );
}

#[test]
fn unsafe_edits_are_rejected_with_their_location() {
    let anchors = "base: &base\n  url: u\nmcpServers:\n  a: *base\n  b:\n    <<: *base\n    x: 1\n";
    let errors = [
        edit_error("p.yaml", anchors, &set(&["mcpServers", "a", "url"], json!("v"))),
        edit_error("p.yaml", anchors, &remove(&["mcpServers", "b", "url"])),
        edit_error("p.yaml", anchors, &set(&["base", "url"], json!("v"))),
        edit_error("p.yaml", anchors, &remove(&["base"])),
        edit_error("p.yaml", anchors, &set(&["base"], json!(1))),
        edit_error("p.yaml", "? a\n: 1\n", &set(&["a"], json!({"x": 1}))),
        edit_error("p.toml", "[[a]]\nx = 1\n", &set(&["a", "x"], json!(1))),
        edit_error("p.json", "{\"a\": 1, \"a\": 2}", &set(&["a"], json!(3))),
        edit_error("p.json", "{\"a\": [1]}", &set(&["a", "b"], json!(3))),
        edit_error("p.toml", "a = 1", &set(&["b"], Value::Null)),
    ];
    insta::assert_snapshot!(errors.join("\n\n"), @r#"
    error[config_invalid]: p.yaml:4:6  mcpServers.a.url
       4 |   a: *base
         |      ^^^^^ the value is an alias, defined elsewhere
      help: the file was not changed; edit mcpServers.a.url by hand

    error[config_invalid]: p.yaml:6:5  mcpServers.b.url
       6 |     <<: *base
         |     ^^^^^^^^^ the value is defined elsewhere in the file
      help: the file was not changed; edit mcpServers.b.url by hand

    error[config_invalid]: p.yaml:2:8  base.url
       2 |   url: u
         |        ^ this edit would change other values
      help: the file was not changed; edit base.url by hand

    error[config_invalid]: p.yaml:1:1  base
       1 | base: &base
         | ^^^^^^^^^^^ this edit would change other values
      help: the file was not changed; edit base by hand

    error[config_invalid]: p.yaml:2:3  base
       2 |   url: u
         |   ^^^^^^ the value has an anchor, an alias or a tag
      help: the file was not changed; edit base by hand

    error[config_invalid]: p.yaml:1:4  a
       1 | ? a
         |    ^ the key uses the explicit '?' syntax
      help: the file was not changed; edit a by hand

    error[config_invalid]: p.toml:1:1  a.x
       1 | [[a]]
         | ^^^^^ expected an object here
      help: the file was not changed; edit a.x by hand

    error[config_invalid]: p.json:1:10  a
       1 | {"a": 1, "a": 2}
         |          ^^^ duplicate key: remove one of the two first
      help: the file was not changed; edit a by hand

    error[config_invalid]: p.json:1:7  a.b
       1 | {"a": [1]}
         |       ^^^ expected an object here
      help: the file was not changed; edit a.b by hand

    error[config_invalid]: p.toml:1:6  b
       1 | a = 1
         |      ^ this edit would change other values
      help: the file was not changed; edit b by hand
    "#);
}

#[test]
fn siblings_of_aliases_can_be_edited() {
    let anchors = "base: &base\n  url: u\nmcpServers:\n  a: *base\n  b:\n    <<: *base\n    x: 1\n";
    check(
        "p.yaml",
        anchors,
        &remove(&["mcpServers", "a"]),
        "base: &base\n  url: u\nmcpServers:\n  b:\n    <<: *base\n    x: 1\n",
    );
    check(
        "p.yaml",
        anchors,
        &set(&["mcpServers", "b", "url"], json!("v")),
        "base: &base\n  url: u\nmcpServers:\n  a: *base\n  b:\n    <<: *base\n    x: 1\n    url: v\n",
    );
    check("p.yaml", anchors, &set(&["mcpServers", "c"], json!(1)), &format!("{anchors}  c: 1\n"));
}

#[test]
fn a_diff_redacts_secrets() {
    let old = "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"a\",\n      \"args\": [\"--token\", \"abc\", \"-v\", \"API_KEY=xyz\"],\n      \"env\": {\"A\": \"${A}\", \"B\": \"sk-1\"},\n      \"url\": \"https://me:pw@host/\",\n      \"bearer_token_env_var\": \"MINE\"\n    }\n  }\n}";
    let new = old.replace("\"-v\"", "\"-q\"").replace("sk-1", "sk-2") + "\n";
    insta::assert_snapshot!(pegboard_config::edit::diff(Path::new("mcp.json"), old, &new), @r#"
    --- mcp.json
    +++ mcp.json
    @@ -2,10 +2,10 @@
       "mcpServers": {
         "a": {
           "command": "a",
    -      "args": ["--token", "***", "-v", "***_***=***"],
    -      "env": {"A": "${A}", "B": "**-*"},
    +      "args": ["--token", "***", "-q", "***_***=***"],
    +      "env": {"A": "${A}", "B": "**-*"},
           "url": "*****://**:**@****/",
           "bearer_token_env_var": "MINE"
         }
       }
    -}
    \ No newline at end of file
    +}
    "#);
    assert_eq!(pegboard_config::edit::diff(Path::new("mcp.json"), old, old), "");
}

#[test]
fn writes_are_atomic_and_keep_permissions_and_links() {
    use pegboard_config::edit::{WriteError, write};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/mcp.json");
    write(&path, None, "{}").unwrap();
    assert!(matches!(write(&path, None, "[]"), Err(WriteError::Changed { .. })));
    assert!(matches!(write(&path, Some("other"), "[]"), Err(WriteError::Changed { .. })));
    let names = || std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), names()), ("{}", 1));
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let link = folder.path().join("link.json");
        symlink("deep/er/mcp.json", &link).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        write(&link, Some("{}"), "{\"a\": 1}").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\": 1}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o440)).unwrap();
        assert!(matches!(write(&link, Some("{\"a\": 1}"), "{}"), Err(WriteError::ReadOnly { .. })));
        assert_eq!(names(), 1);
    }
}
