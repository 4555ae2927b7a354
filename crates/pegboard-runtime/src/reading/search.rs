//! The lines that have the words of a query, best first.

use std::cmp::Reverse;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::cursor::{Cursor, Place};
use super::effort::Effort;
use super::page::{Reading, counted_more, excerpt, room};

/// How long a query may be.
const MAX_QUERY_BYTES: usize = 256;
/// How many different words of it are looked for.
const MAX_WORDS: usize = 16;
/// A longer line is looked at in pieces.
const MAX_PIECE_BYTES: usize = 1_000;
/// How many of the best lines are kept.
const MAX_HITS: usize = 1_000;
/// What a line number may take.
const LINE_NUMBER_BYTES: usize = 32;

/// Plain words to look for, in upper or lower case.
#[derive(Clone, Debug)]
pub struct Words {
    text: String,
    each: RegexSet,
    any: Regex,
}

/// A text that has no words to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWords {
    /// It has none.
    #[error("`query` has no words")]
    None,
    /// It has more than anybody looks for.
    #[error("`query` is longer than {MAX_QUERY_BYTES} bytes or has more than {MAX_WORDS} words")]
    TooMany,
}

impl Words {
    /// The words of a query, separated by spaces.
    pub fn new(query: &str) -> Result<Self, BadWords> {
        let mut words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        words.sort_unstable();
        words.dedup();
        if words.is_empty() {
            return Err(BadWords::None);
        }
        if query.len() > MAX_QUERY_BYTES || words.len() > MAX_WORDS {
            return Err(BadWords::TooMany);
        }
        let words: Vec<String> = words.iter().map(|word| regex::escape(word)).collect();
        let each = RegexSetBuilder::new(&words).case_insensitive(true).build();
        let any = RegexBuilder::new(&words.join("|")).case_insensitive(true).build();
        match (each, any) {
            (Ok(each), Ok(any)) => Ok(Self { text: query.to_owned(), each, any }),
            (Err(_), _) | (_, Err(_)) => Err(BadWords::TooMany),
        }
    }

    /// How they were written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Words {}

/// The best lines, without the first `n_shown` of them.
pub(super) fn page(text: &str, words: &Words, n_shown: usize, max_bytes: usize, effort: &Effort) -> Reading {
    let hits = hits(text, words, effort);
    if effort.is_over() {
        return Reading::nothing("The output is too large to be searched by words in time; use grep.");
    }
    if n_shown >= hits.len() {
        let more = if n_shown > 0 { "more " } else { "" };
        return Reading::nothing(&format!("No {more}lines have any of these words."));
    }
    let widest = Place::Search { words: words.clone(), n_shown: MAX_HITS };
    let room = room(max_bytes, &Cursor(widest));
    let limit = MAX_PIECE_BYTES.min(room - LINE_NUMBER_BYTES);
    let mut content = String::new();
    for (place, hit) in hits.iter().enumerate().skip(n_shown) {
        let found = words.any.find(hit.piece.text).map_or(0..0, |found| found.range());
        let (shown, _) = excerpt(hit.piece.text, found, limit);
        let line = format!("{}: {shown}\n", hit.piece.line);
        if content.len() + line.len() > room {
            let left = counted_more(hits.len() - place, "line");
            let next = Place::Search { words: words.clone(), n_shown: place };
            return Reading::cut(content, &left, Cursor(next), max_bytes);
        }
        content += &line;
    }
    Reading::whole(content)
}

#[derive(Clone, Copy)]
struct Piece<'text> {
    /// The number of its line.
    line: usize,
    text: &'text str,
}

struct Hit<'text> {
    score: u32,
    /// Its place among all pieces.
    place: usize,
    piece: Piece<'text>,
}

/// The pieces that have a word, best first and otherwise in their order.
fn hits<'text>(text: &'text str, words: &Words, effort: &Effort) -> Vec<Hit<'text>> {
    let weights = weights(text, words, effort);
    let mut hits = Vec::new();
    for (place, piece) in pieces(text).take_while(|_| !effort.is_over()).enumerate() {
        let score: u32 = words.each.matches(piece.text).iter().map(|word| weights[word]).sum();
        if score > 0 {
            hits.push(Hit { score, place, piece });
        }
        if hits.len() == 2 * MAX_HITS {
            keep_best(&mut hits);
        }
    }
    keep_best(&mut hits);
    hits
}

fn keep_best(hits: &mut Vec<Hit<'_>>) {
    hits.sort_unstable_by_key(|hit| (Reverse(hit.score), hit.place));
    hits.truncate(MAX_HITS);
}

/// What each word counts: the rarer the more.
fn weights(text: &str, words: &Words, effort: &Effort) -> Vec<u32> {
    let mut n_with = vec![0_usize; words.each.len()];
    let mut n_pieces = 0_usize;
    for piece in pieces(text).take_while(|_| !effort.is_over()) {
        n_pieces += 1;
        for word in &words.each.matches(piece.text) {
            n_with[word] += 1;
        }
    }
    n_with.into_iter().map(|n_with| 1 + n_pieces.checked_div(n_with).map_or(0, usize::ilog2)).collect()
}

/// The lines of a text, and the pieces of those that are long, cut between words where that can be.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
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
            Some(Piece { line, text })
        })
    })
}
