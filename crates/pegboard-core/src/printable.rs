//! Text of servers, models and files, made safe to print.
//!
//! A terminal obeys control characters, and a reader does not see characters that are invisible or change the
//! direction of the text. Both can hide what a server says, or fake what this program says.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns a text in which characters that a terminal obeys or hides are visible: `␛[2J`, `\u{202e}`. Line breaks,
/// tabs, and the joiners of emoji and of scripts that need them stay.
///
/// ```
/// use pegboard_core::printable::printable;
///
/// assert_eq!(printable("\u{1b}[2J \u{202e}txt.exe"), "␛[2J \\u{202e}txt.exe");
/// assert_eq!(printable("👩‍🚀 می‌خواهم\n"), "👩‍🚀 می‌خواهم\n");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |character, output| {
        let picture = match character {
            '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)),
            '\x7f' => Some('\u{2421}'),
            _ => None,
        };
        match picture {
            Some(picture) => output.push(picture),
            None => output.extend(character.escape_unicode()),
        }
    })
}

/// Returns JSON with the same value, in which such characters are escaped: `\u202e`.
///
/// ```
/// use pegboard_core::printable::printable_json;
///
/// assert_eq!(printable_json("{\"a\": \"\u{9b}2J\u{e0041}\"}"), r#"{"a": "\u009b2J\udb40\udc41"}"#);
/// ```
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escaped(json, |character, output| {
        // JSON has it only between tokens, where an escape would be an error.
        if character == '\r' {
            return output.push('\n');
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(output, "\\u{unit:04x}").expect("writing to a String cannot fail");
        }
    })
}

/// Escapes the characters of a text that are not printable, each in its context.
fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    let Some(start) = text.bytes().position(|byte| !is_plain(byte)) else { return text.into() };
    let mut output = String::with_capacity(text.len());
    // The character before may be joined with the first that is not plain.
    let start = text.floor_char_boundary(start.saturating_sub(1));
    output.push_str(&text[..start]);
    let mut before = None;
    let mut rest = text[start..].chars();
    while let Some(character) = rest.next() {
        let after = rest.clone().next();
        match character {
            // A line break of other systems.
            '\r' if after == Some('\n') => {}
            _ if is_printable(before, character, after) => output.push(character),
            _ => escape(character, &mut output),
        }
        before = Some(character);
    }
    output.into()
}

/// Returns `true` if a reader sees a character, given the ones beside it.
fn is_printable(before: Option<char>, character: char, after: Option<char>) -> bool {
    match character {
        '\n' | '\t' => true,
        // The joiners of Arabic, Persian, Indic scripts and emoji.
        '\u{200c}' | '\u{200d}' => before.is_some_and(is_joined) && after.is_some_and(is_joined),
        // The choice between text and emoji.
        '\u{fe0e}' | '\u{fe0f}' => before
            .is_some_and(|before| is_emoji(before) || matches!(before, '0'..='9' | '#' | '*' | '©' | '®')),
        _ => !character.is_control() && !is_invisible(character),
    }
}

/// Returns `true` for characters without a shape of their own, and those that change the direction of the text.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Returns `true` for characters that joiners occur between.
fn is_joined(character: char) -> bool {
    is_emoji(character)
        || matches!(character, '\u{fe0f}' | '\u{590}'..='\u{109f}' | '\u{1780}'..='\u{18af}' | '\u{fb50}'..='\u{fdff}'
            | '\u{fe70}'..='\u{fefc}' | '\u{11000}'..='\u{11fff}')
}

/// Returns `true` for emoji and the symbols that can be shown as one.
fn is_emoji(character: char) -> bool {
    matches!(character, '\u{203c}' | '\u{2049}' | '\u{2100}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}'
        | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_or_hides_is_visible() {
        for (text, expected) in [
            ("", ""),
            ("plain\ttext\n", "plain\ttext\n"),
            ("lines\r\nof others\r\n", "lines\nof others\n"),
            ("50%\r100%", "50%␍100%"),
            ("\u{1b}[31mred\u{1b}]0;title\u{7}", "␛[31mred␛]0;title␇"),
            ("\u{1b}", "␛"),
            ("\u{7f}\0\u{8}", "␡␀␈"),
            ("\u{9b}2J\u{85}", r"\u{9b}2J\u{85}"),
            ("a\u{202e}b\u{2066}c\u{200f}", r"a\u{202e}b\u{2066}c\u{200f}"),
            ("pay\u{200b}pal\u{2060}\u{feff}", r"pay\u{200b}pal\u{2060}\u{feff}"),
            ("hi\u{e0041}\u{e007f}", r"hi\u{e0041}\u{e007f}"),
            ("a\u{fe0f}\u{fe01}\u{3164}", r"a\u{fe0f}\u{fe01}\u{3164}"),
            ("\u{2028}\u{2029}", r"\u{2028}\u{2029}"),
            ("ad\u{200d}min x\u{200c}", r"ad\u{200d}min x\u{200c}"),
            ("👩\u{200d}\u{200d}🚀", r"👩\u{200d}\u{200d}🚀"),
        ] {
            assert_eq!(printable(text), expected, "{text:?}");
        }
    }

    #[test]
    fn words_of_all_scripts_stay_readable() {
        for text in [
            "Ärger, naïve, Ελλάδα, Москва, 日本語, 한국어",
            "العربية والعَرَبِيَّة",
            "می\u{200c}خواهم خانه\u{200c}ها",
            "क्\u{200d}ष शक्\u{200c}ति",
            "👩\u{200d}🚀 👨\u{200d}👩\u{200d}👧 🏳\u{fe0f}\u{200d}🌈 ❤\u{fe0f}\u{200d}🔥 👩🏽\u{200d}⚕\u{fe0f}",
            "1\u{fe0f}\u{20e3} ©\u{fe0f} ☎\u{fe0e} 🇳🇴",
            "é as e\u{301}",
        ] {
            assert_eq!(printable(text), text);
        }
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let hostile = "\u{1b}[2J\u{7f}\u{9b}\u{202e}\u{200b}\u{e0041}\u{fffb}👩\u{200d}🚀\r\n\"";
        let json = serde_json::to_string_pretty(&serde_json::json!({ hostile: [hostile] })).unwrap();
        let json = format!("\r{json}\r \r\n");
        let escaped = printable_json(&json);
        assert_eq!(printable(&escaped), escaped);
        let [one, other] =
            [&*escaped, &json].map(|json| serde_json::from_str::<serde_json::Value>(json).unwrap());
        assert_eq!(one, other);
    }
}
