//! JSON laid out for reading, every name and value spelled as it was.

use pegboard_json::RawJson;

/// The value with each member and item on a line of its own, two spaces deeper than what it is in.
pub(crate) fn pretty(raw: &RawJson) -> String {
    let mut text = String::with_capacity(raw.as_bytes().len() * 2);
    let mut depth = 0;
    let mut is_quoted = false;
    let mut is_escaped = false;
    let mut was_opened = false;
    for letter in raw.as_str().chars() {
        if is_quoted {
            text.push(letter);
            is_quoted = is_escaped || letter != '"';
            is_escaped = letter == '\\' && !is_escaped;
            continue;
        }
        if matches!(letter, ' ' | '\n' | '\r' | '\t') {
            continue;
        }
        let is_closed = matches!(letter, '}' | ']');
        if was_opened && !is_closed {
            depth += 1;
            break_line(&mut text, depth);
        } else if is_closed && !was_opened {
            depth -= 1;
            break_line(&mut text, depth);
        }
        was_opened = matches!(letter, '{' | '[');
        is_quoted = letter == '"';
        text.push(letter);
        match letter {
            ',' => break_line(&mut text, depth),
            ':' => text.push(' '),
            _ => {}
        }
    }
    text
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use pegboard_json::RawJson;
    use serde_json::Value;

    use super::pretty;

    #[test]
    fn it_looks_like_what_everybody_writes_and_keeps_every_spelling() {
        let plain = r#"{ "a":[1,{"b":"x, {y}: \"z\\"}],"c":{},"d":[],"e":null}"#;
        let value: Value = serde_json::from_str(plain).expect("it is JSON");
        let expected = serde_json::to_string_pretty(&value).expect("it is JSON");
        assert_eq!(pretty(&RawJson::parse(plain.into()).expect("it is JSON")), expected);
        let odd = RawJson::parse(r#"[1.0e2,"\u00e9",-0]"#.into()).expect("it is JSON");
        assert_eq!(pretty(&odd), "[\n  1.0e2,\n  \"\\u00e9\",\n  -0\n]");
    }
}
