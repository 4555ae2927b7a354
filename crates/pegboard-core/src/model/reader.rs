//! Who reads what is too large to hand over.

use std::sync::Arc;

use super::Model;

/// A model that reads stored outputs for somebody, and how. What is left open is as for everybody.
#[derive(Clone, Debug)]
pub struct OutputReader {
    /// The model.
    pub model: Arc<dyn Model>,
    /// How many chunks may be given to it whole.
    pub max_chunks: Option<usize>,
    /// How much of a chunk the next one repeats, in percent.
    pub overlap_percent: Option<u8>,
    /// From which average length of a line on a text is read in chunks rather than searched.
    pub avg_line_bytes_threshold: Option<usize>,
}

impl OutputReader {
    /// A reader that leaves everything open but its model.
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { model, max_chunks: None, overlap_percent: None, avg_line_bytes_threshold: None }
    }
}
