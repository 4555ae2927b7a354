//! A value over several lines, for people, with everything in it as it was written.

use crate::raw::RawJson;

impl RawJson {
    /// The value with a line for each member and item, two spaces further in than what it is in.
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
        // What was opened last, as long as nothing is in it.
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
    fn it_looks_like_what_everybody_writes_and_keeps_every_spelling() {
        let plain = r#"{ "a":[1,{"b":"x, {y}: \"z\\"}],"c":{},"d":[],"e":null}"#;
        let value: Value = serde_json::from_str(plain).expect("it is JSON");
        let expected = serde_json::to_string_pretty(&value).expect("it is JSON");
        assert_eq!(RawJson::parse(plain.into()).expect("it is JSON").indented(), expected);
        let odd = RawJson::parse(r#"[1.0e2,"\u00e9",-0]"#.into()).expect("it is JSON");
        assert_eq!(odd.indented(), "[\n  1.0e2,\n  \"\\u00e9\",\n  -0\n]");
    }
}
