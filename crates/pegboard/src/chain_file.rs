//! Chains read from files.

use std::fmt;

use crate::chain::ChainSpec;

/// A text is not a valid chain. Holds the line and column of the error.
#[derive(Debug)]
pub struct ChainFileError(Box<serde_saphyr::Error>);

impl ChainFileError {
    /// Error message without the location.
    pub fn message(&self) -> String {
        let text = self.0.without_snippet().to_string();
        // The parser adds the location itself, before or after the message.
        let text = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
        let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        text.replace("expected sequence start", "expected a list")
            .replace("expected mapping start", "expected an object")
    }

    /// Line and column of the error, starting at 1.
    pub fn place(&self) -> Option<(u64, u64)> {
        let location = self.0.location()?;
        Some((location.line(), location.column()))
    }
}

impl fmt::Display for ChainFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some((line, column)) => {
                write!(f, "invalid chain: {line}:{column}: {}", self.message())
            }
            None => write!(f, "invalid chain: {}", self.message()),
        }
    }
}

impl std::error::Error for ChainFileError {}

/// Parses a chain from YAML or JSON (a subset of YAML).
///
/// ```
/// use pegboard::prelude::*;
///
/// let spec = pegboard::read_chain("
/// chain: research
/// steps:
///   - {tool: fetch_page, with: {url: start.url}, as: page}
///   - {tool: summarise, with: {text: page.body}, as: summary}
/// ")?;
/// assert_eq!(spec.steps[1].output_key, "summary");
///
/// let registry = ToolRegistry::new();
/// let chain = ToolChain::from_spec(spec, &registry);
/// assert_eq!(chain.validate().errors[0], "Step 0: tool 'fetch_page' not found in registry.");
/// # Ok::<(), pegboard::ChainFileError>(())
/// ```
pub fn read_chain(text: &str) -> Result<ChainSpec, ChainFileError> {
    serde_saphyr::from_str(text).map_err(|error| ChainFileError(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_chain_is_reported_with_its_location() {
        let messages =
            ["", "steps: [", "steps:\n  - {tool: a, wth: {}}", "steps: 3", "chain: a", "a: 1\na: 2"]
                .map(|text| read_chain(text).unwrap_err().to_string());
        insta::assert_snapshot!(messages.join("\n"), @"
        invalid chain: 1:1: unexpected end of input
        invalid chain: 1:8: unclosed bracket '['
        invalid chain: 2:15: unknown field `wth`, expected one of tool, tool_name, input_mapping, with, as, output_key, timeout, when, for_each, concurrency, parallel, on_partial
        invalid chain: 1:8: expected a list
        invalid chain: 1:1: missing field `steps`
        invalid chain: 1:1: unknown field `a`, expected one of chain, name, description, input_schema, output, semantics, steps
        ");
    }
}
