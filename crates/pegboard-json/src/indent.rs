//! Pretty-printing that keeps the spelling of every value.

use crate::raw::RawJson;

impl RawJson {
    /// Returns the value pretty-printed: one line per member or item, indented by two spaces per level.
    ///
    /// ```
    /// use pegboard_json::RawJson;
    ///
    /// let raw = RawJson::parse(r#"{"a":[1e999, {}],"b" : "x, {y"}"#.into()).unwrap();
    /// assert_eq!(raw.indented(), "{\n  \"a\": [\n    1e999,\n    {}\n  ],\n  \"b\": \"x, {y\"\n}");
    /// ```
    pub fn indented(&self) -> String {
        let mut text = String::with_capacity(self.as_str().len() * 2);
        let mut depth = 0;
        let mut is_text = false;
        let mut is_escaped = false;
        // `true` right after an opening bracket.
        let mut is_empty = false;
        for each in self.as_str().chars() {
            if is_text {
                text.push(each);
                is_text = is_escaped || each != '"';
                is_escaped = !is_escaped && each == '\\';
                continue;
            }
            if each.is_ascii_whitespace() {
                continue;
            }
            let is_end = matches!(each, '}' | ']');
            depth -= usize::from(is_end);
            if is_end != is_empty {
                begin_line(&mut text, depth);
            }
            text.push(each);
            is_empty = matches!(each, '{' | '[');
            depth += usize::from(is_empty);
            is_text = each == '"';
            match each {
                ',' => begin_line(&mut text, depth),
                ':' => text.push(' '),
                _ => {}
            }
        }
        text
    }
}

fn begin_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn matches_serde_json_layout_and_keeps_spelling() {
        let plain = r#"{ "a":[1,{"b":"x, {y}: \"z\\"}],"c":{},"d":[],"e":null}"#;
        let value: Value = serde_json::from_str(plain).expect("it is JSON");
        let expected = serde_json::to_string_pretty(&value).expect("it is JSON");
        assert_eq!(RawJson::parse(plain.into()).expect("it is JSON").indented(), expected);
        let odd = RawJson::parse(r#"[1.0e2,"\u00e9",-0]"#.into()).expect("it is JSON");
        assert_eq!(odd.indented(), "[\n  1.0e2,\n  \"\\u00e9\",\n  -0\n]");
    }
}
