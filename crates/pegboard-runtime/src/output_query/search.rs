//! The `search` view: lines that contain the words of a query, best first.

use std::cmp::Reverse;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::cursor::{CursorPosition, PageCursor};
use super::page::{OutputPage, content_capacity, counted_more, excerpt};
use super::work_budget::WorkBudget;

/// Maximum length of a query.
const MAX_QUERY_BYTES: usize = 256;
/// Maximum number of distinct words in a query.
const MAX_WORDS: usize = 16;
/// Longer lines are searched in pieces.
const MAX_PIECE_BYTES: usize = 1_000;
/// Maximum number of hits retained.
const MAX_HITS: usize = 1_000;
/// Size reserved for a line number.
const LINE_NUMBER_BYTES: usize = 32;

/// Words to search for, case-insensitive.
#[derive(Clone, Debug)]
pub struct SearchWords {
    text: String,
    each: RegexSet,
    any: Regex,
}

/// Error of parsing a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWords {
    /// The query has no words.
    #[error("`query` has no words")]
    None,
    /// The query is too long or has too many words.
    #[error("`query` is longer than {MAX_QUERY_BYTES} bytes or has more than {MAX_WORDS} words")]
    TooMany,
}

impl SearchWords {
    /// Parses the words of a query, separated by whitespace.
    pub fn new(query: &str) -> Result<Self, InvalidWords> {
        let mut words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        words.sort_unstable();
        words.dedup();
        if words.is_empty() {
            return Err(InvalidWords::None);
        }
        if query.len() > MAX_QUERY_BYTES || words.len() > MAX_WORDS {
            return Err(InvalidWords::TooMany);
        }
        let words: Vec<String> = words.iter().map(|word| regex::escape(word)).collect();
        let each = RegexSetBuilder::new(&words).case_insensitive(true).build();
        let any = RegexBuilder::new(&words.join("|")).case_insensitive(true).build();
        match (each, any) {
            (Ok(each), Ok(any)) => Ok(Self { text: query.to_owned(), each, any }),
            (Err(_), _) | (_, Err(_)) => Err(InvalidWords::TooMany),
        }
    }

    /// Returns the query as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for SearchWords {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SearchWords {}

/// Returns the best lines, skipping the first `n_shown`.
pub(super) fn page(
    text: &str,
    words: &SearchWords,
    n_shown: usize,
    max_bytes: usize,
    budget: &WorkBudget,
) -> OutputPage {
    let hits = hits(text, words, budget);
    if budget.is_exhausted() {
        return OutputPage::empty("The output is too large to be searched by words in time; use grep.");
    }
    if n_shown >= hits.len() {
        let more = if n_shown > 0 { "more " } else { "" };
        return OutputPage::empty(&format!("No {more}lines have any of these words."));
    }
    let widest = CursorPosition::Search { words: words.clone(), n_shown: MAX_HITS };
    let room = content_capacity(max_bytes, &PageCursor(widest));
    let limit = MAX_PIECE_BYTES.min(room - LINE_NUMBER_BYTES);
    let mut content = String::new();
    for (place, hit) in hits.iter().enumerate().skip(n_shown) {
        let found = words.any.find(hit.piece.text).map_or(0..0, |found| found.range());
        let (shown, _) = excerpt(hit.piece.text, found, limit);
        let line = format!("{}: {shown}\n", hit.piece.line);
        if content.len() + line.len() > room {
            let left = counted_more(hits.len() - place, "line");
            let next = CursorPosition::Search { words: words.clone(), n_shown: place };
            return OutputPage::partial(content, &left, PageCursor(next), max_bytes);
        }
        content += &line;
    }
    OutputPage::complete(content)
}

#[derive(Clone, Copy)]
struct LinePiece<'text> {
    /// Number of its line.
    line: usize,
    text: &'text str,
}

struct LineHit<'text> {
    score: u32,
    /// Position among all pieces.
    place: usize,
    piece: LinePiece<'text>,
}

/// Returns the pieces that contain a word, best first, otherwise in text order.
fn hits<'text>(text: &'text str, words: &SearchWords, budget: &WorkBudget) -> Vec<LineHit<'text>> {
    let weights = weights(text, words, budget);
    let mut hits = Vec::new();
    for (place, piece) in pieces(text).take_while(|_| !budget.is_exhausted()).enumerate() {
        let score: u32 = words.each.matches(piece.text).iter().map(|word| weights[word]).sum();
        if score > 0 {
            hits.push(LineHit { score, place, piece });
        }
        if hits.len() == 2 * MAX_HITS {
            keep_best(&mut hits);
        }
    }
    keep_best(&mut hits);
    hits
}

fn keep_best(hits: &mut Vec<LineHit<'_>>) {
    hits.sort_unstable_by_key(|hit| (Reverse(hit.score), hit.place));
    hits.truncate(MAX_HITS);
}

/// Returns the weight of each word: rarer words weigh more.
fn weights(text: &str, words: &SearchWords, budget: &WorkBudget) -> Vec<u32> {
    let mut n_with = vec![0_usize; words.each.len()];
    let mut n_pieces = 0_usize;
    for piece in pieces(text).take_while(|_| !budget.is_exhausted()) {
        n_pieces += 1;
        for word in &words.each.matches(piece.text) {
            n_with[word] += 1;
        }
    }
    n_with.into_iter().map(|n_with| 1 + n_pieces.checked_div(n_with).map_or(0, usize::ilog2)).collect()
}

/// Returns the lines of a text; long ones are split into pieces, between words where possible.
fn pieces(text: &str) -> impl Iterator<Item = LinePiece<'_>> {
    text.lines().zip(1..).flat_map(|(mut rest, line)| {
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let most = rest.floor_char_boundary(MAX_PIECE_BYTES);
            let between_words = || rest[..most].rfind(char::is_whitespace).filter(|space| *space > 0);
            let end = if most < rest.len() { between_words().unwrap_or(most) } else { most };
            let (text, after) = rest.split_at(end);
            rest = after;
            Some(LinePiece { line, text })
        })
    })
}
