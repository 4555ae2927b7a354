//! Patterns of a schema: their sizes within a budget, and those that cannot be checked.

use std::collections::HashMap;
use std::str::Chars;

use regex_automata::meta;
use regex_automata::util::syntax;

/// Maximum size of the automaton of a pattern.
pub(super) const MAX_PATTERN_BYTES: usize = 1 << 20;
/// Maximum memory of the programs of all patterns of one schema.
pub(super) const MAX_PROGRAM_BYTES: usize = 4 << 20;
/// Memory that stands for the time which it takes to compile one byte of a pattern.
const BYTES_PER_TEXT_BYTE: usize = 64;
/// Maximum number of escaped control letters, for each of which the validator reads the pattern again.
const MAX_CONTROL_ESCAPES: usize = 16;
/// Maximum memory of the lazily built automata of all patterns of one schema, on each thread.
const MAX_CACHE_BYTES: usize = 1 << 20;
/// Maximum memory of one lazily built automaton.
const MAX_AUTOMATON_BYTES: usize = 128 << 10;
/// Number of lazily built automata of a pattern: one for each direction.
const AUTOMATA_PER_PATTERN: usize = 2;

/// Compiles patterns one by one to measure their programs, as long as their budget lasts.
pub(super) struct PatternBudget {
    rest: usize,
    /// Memory of the program of each pattern; `None` for one that cannot be checked.
    programs: HashMap<String, Option<usize>>,
}

/// Memory of the patterns of one schema.
#[derive(Clone, Copy)]
pub(super) struct PatternMemory {
    /// Limit of each lazily built automaton.
    pub(super) automaton_bytes: usize,
    /// Maximum memory of all patterns, as used by one thread.
    pub(super) n_bytes: usize,
}

impl Default for PatternBudget {
    fn default() -> Self {
        Self { rest: MAX_PROGRAM_BYTES, programs: HashMap::new() }
    }
}

impl PatternBudget {
    /// Returns the memory of the program of a pattern; `None` if it cannot be checked.
    pub(super) fn measure(&mut self, pattern: &str) -> Option<usize> {
        if let Some(known) = self.programs.get(pattern) {
            return *known;
        }
        let measured = self.compile(pattern);
        self.programs.insert(pattern.to_owned(), measured);
        measured
    }

    /// Compiles a pattern. Whatever that costs is spent, even if the pattern turns out to be unusable.
    fn compile(&mut self, pattern: &str) -> Option<usize> {
        let reading = pattern.len().saturating_mul(BYTES_PER_TEXT_BYTE);
        self.rest = self.rest.checked_sub(reading)?;
        if pattern.matches("\\c").count() > MAX_CONTROL_ESCAPES {
            return None;
        }
        if jsonschema_regex::analyze_pattern(pattern).is_some() {
            return Some(reading);
        }
        let translated = jsonschema_regex::to_rust_regex(pattern).ok()?;
        let limits = meta::Config::new().nfa_size_limit(Some(MAX_PATTERN_BYTES));
        let built = meta::Builder::new().configure(limits).syntax(syntax::Config::new()).build(&translated);
        let (spent, measured) = match &built {
            Ok(program) => (program.memory_usage(), Some(program.memory_usage())),
            Err(error) if error.size_limit().is_some() => (MAX_PATTERN_BYTES, None),
            Err(_) => (0, None),
        };
        // The last one may exceed the rest, and is not checked.
        let rest = self.rest.checked_sub(spent);
        self.rest = rest.unwrap_or(0);
        measured.filter(|_| rest.is_some())
    }

    /// Returns the memory of all patterns that can be checked.
    pub(super) fn memory(&self) -> PatternMemory {
        let programs = || self.programs.values().flatten();
        let n_automata = AUTOMATA_PER_PATTERN * programs().count();
        let automaton_bytes = MAX_AUTOMATON_BYTES.min(MAX_CACHE_BYTES / n_automata.max(1));
        PatternMemory { automaton_bytes, n_bytes: programs().sum::<usize>() + n_automata * automaton_bytes }
    }
}

/// Estimates the number of states of a pattern by its text, with its repetitions written out.
pub(super) fn n_states(pattern: &str) -> usize {
    /// States of a class of Unicode by property, and of any other class that may be negated.
    const PROPERTY_STATES: usize = 512;
    const CLASS_STATES: usize = 10;
    let of_escape = |rest: &mut Chars<'_>| match rest.next() {
        Some('p' | 'P') => {
            // The name of the property: a letter, or more in braces.
            if rest.next() == Some('{') {
                let _ = rest.find(|&end| end == '}');
            }
            PROPERTY_STATES
        }
        Some(letter) if letter.is_ascii_alphabetic() => CLASS_STATES,
        _ => 1,
    };
    let mut enclosing = Vec::new();
    let (mut n_states, mut last) = (0_usize, 0_usize);
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        last = match character {
            '(' => {
                enclosing.push(n_states);
                n_states = 0;
                continue;
            }
            ')' => {
                let group = n_states;
                n_states = enclosing.pop().unwrap_or(0);
                group
            }
            '{' => {
                let limits: String = rest.by_ref().take_while(|&end| end != '}').collect();
                let times =
                    limits.split(',').filter_map(|limit| limit.trim().parse().ok()).max().unwrap_or(1);
                n_states = n_states.saturating_sub(last);
                last.saturating_mul(times)
            }
            '[' => {
                let mut n_class_states = CLASS_STATES;
                while let Some(inner) = rest.next().filter(|&end| end != ']') {
                    n_class_states += if inner == '\\' { of_escape(&mut rest) } else { 1 };
                }
                n_class_states
            }
            '\\' => of_escape(&mut rest),
            '.' => CLASS_STATES,
            _ => 1,
        };
        n_states = n_states.saturating_add(last);
    }
    enclosing.into_iter().fold(n_states, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_a_pattern_are_estimated_by_its_text() {
        for (pattern, expected) in [
            ("^abc$", 5),
            ("a{3}b", 4),
            ("(ab){3}", 6),
            ("((a{10}){10}){10}", 1_000),
            ("[a-c]{2,4}", 52),
            ("\\pL{20}", 10_240),
            ("\\p{Letter}{3}[^\\pN]", 2_059),
            ("\\.\\d", 11),
            ("(((a", 1),
            ("a{1,99999999999999999999}", 1),
            ("a)){", 1),
        ] {
            assert_eq!(n_states(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn all_patterns_of_a_schema_share_one_budget() {
        let mut budget = PatternBudget::default();
        let patterns: Vec<String> = (0..12).map(|n| format!("\\pL{{20}}x{n}")).collect();
        let measured: Vec<usize> = patterns.iter().filter_map(|pattern| budget.measure(pattern)).collect();
        assert!(!measured.is_empty() && measured.len() < patterns.len(), "{measured:?}");
        assert!(measured.iter().sum::<usize>() <= MAX_PROGRAM_BYTES);
        assert!(budget.memory().n_bytes <= MAX_PROGRAM_BYTES + MAX_CACHE_BYTES);
        // A pattern that is used twice is compiled once.
        assert_eq!(budget.measure(&patterns[0]), Some(measured[0]));
        assert_eq!(budget.measure(&patterns[11]), None);
    }

    #[test]
    fn what_cannot_be_compiled_costs_as_much_as_what_can() {
        let mut budget = PatternBudget::default();
        let n_tried =
            (0..100).take_while(|n| budget.measure(&format!("\\pL{{500}}{n}")).is_none() && budget.rest > 0);
        assert!(n_tried.count() <= MAX_PROGRAM_BYTES / MAX_PATTERN_BYTES);
        assert_eq!(budget.measure("^a+b"), None);
        assert_eq!(PatternBudget::default().measure(&"\\cA".repeat(100)), None);
    }
}
