//! Chains from files.

use crate::chain::ChainSpec;

/// Why a text is no chain, with the line and column where it is wrong.
#[derive(Debug, thiserror::Error)]
#[error("the chain cannot be read: {0}")]
pub struct ChainFileError(Box<serde_saphyr::Error>);

/// Reads a chain from YAML, or from JSON, which is YAML too.
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
