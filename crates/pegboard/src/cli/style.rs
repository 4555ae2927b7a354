//! Styles of terminal text that a server cannot imitate.

use std::fmt;
use std::sync::OnceLock;

use pegboard::printable::printable;

/// Style of the text behind it. Written between parts of a text, it has the form of a color code with a mark that is
/// random for each process, so that no text of a server is taken for a style.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextStyle {
    /// Parameter of the color code.
    code: &'static str,
}

/// Dim text. Styles are left out where colors are off.
pub(crate) const DIM: TextStyle = TextStyle { code: "2" };
/// Bold text.
pub(crate) const BOLD: TextStyle = TextStyle { code: "1" };
/// Success.
pub(crate) const GREEN: TextStyle = TextStyle { code: "32" };
/// Warning.
pub(crate) const YELLOW: TextStyle = TextStyle { code: "33" };
/// Error.
pub(crate) const RED: TextStyle = TextStyle { code: "31" };
/// Default style.
pub(crate) const PLAIN: TextStyle = TextStyle { code: "0" };

/// All styles.
const ALL: [TextStyle; 6] = [DIM, BOLD, GREEN, YELLOW, RED, PLAIN];

impl fmt::Display for TextStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\u{1b}[{};{}m", self.code, mark())
    }
}

/// Renders a text: styles as color codes, everything else printable.
pub(crate) fn render(text: &str) -> String {
    let mut rendered = String::with_capacity(text.len());
    for (style, text) in segments(text) {
        if let Some(TextStyle { code }) = style {
            rendered.push_str("\u{1b}[");
            rendered.push_str(code);
            rendered.push('m');
        }
        rendered.push_str(&printable(text));
    }
    rendered
}

/// Splits a text at its styles. Each part but the first has one.
pub(crate) fn segments(text: &str) -> impl Iterator<Item = (Option<TextStyle>, &str)> {
    let mut rest = Some((None, text));
    std::iter::from_fn(move || {
        let (style, text) = rest.take()?;
        let ends = text.match_indices('\u{1b}').find_map(|(at, _)| Some((at, leading(&text[at..])?)));
        let Some((at, (next_style, behind))) = ends else { return Some((style, text)) };
        rest = Some((Some(next_style), behind));
        Some((style, &text[..at]))
    })
}

/// Returns the style at the start of a text, and the text behind it.
fn leading(text: &str) -> Option<(TextStyle, &str)> {
    let (code, rest) = text.strip_prefix("\u{1b}[")?.split_once(';')?;
    let style = ALL.into_iter().find(|style| style.code == code)?;
    Some((style, rest.strip_prefix(mark())?.strip_prefix('m')?))
}

/// Random number of this process.
fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| rand::random::<u64>().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_styles_become_color_codes() {
        let hostile = "\u{1b}[31mfake\u{1b}[0;1mx\u{1b}[";
        let text = format!("{RED}✗{PLAIN} {hostile}{DIM}y{PLAIN}");
        assert_eq!(render(&text), "\u{1b}[31m✗\u{1b}[0m ␛[31mfake␛[0;1mx␛[\u{1b}[2my\u{1b}[0m");
        assert_eq!(render(hostile), "␛[31mfake␛[0;1mx␛[");
        assert_eq!(render(""), "");
    }
}
