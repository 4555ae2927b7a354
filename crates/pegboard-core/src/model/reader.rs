//! Models that read stored outputs.

use std::sync::Arc;

use super::Model;

/// Model that reads stored outputs on behalf of a caller. Fields left open use the global settings.
#[derive(Clone, Debug)]
pub struct OutputReader {
    /// Model to use.
    pub model: Arc<dyn Model>,
    /// Maximum number of chunks passed to the model whole.
    pub max_chunks: Option<usize>,
    /// Overlap of consecutive chunks, in percent.
    pub overlap_percent: Option<u8>,
    /// Average line length above which a text is read in chunks rather than searched.
    pub avg_line_bytes_threshold: Option<usize>,
}

impl OutputReader {
    /// Creates a reader with default settings.
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { model, max_chunks: None, overlap_percent: None, avg_line_bytes_threshold: None }
    }
}
