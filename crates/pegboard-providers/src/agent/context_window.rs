//! Keeps a conversation within the context window of a model.

use pegboard_core::model::{ChatMessage, ModelRequest, ToolResult};

/// Text of a tool result for which the context window has no room.
pub(super) const CONTEXT_EXCEEDED: &str = "(tool failed: context window budget exceeded)";
/// Replacement text of a result that was dropped to free context.
const RESULT_OMITTED: &str =
    "(left out: the conversation is too long for all answers; call the tool again if you need this one)";
/// Minimum size of a result that is worth sending.
const MIN_RESULT_BYTES: u64 = 1_024;
/// Estimated number of bytes per token.
const BYTES_PER_TOKEN: u64 = 4;

/// Token budget of a model, if its context window is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContextBudget {
    /// Maximum tokens of a request, without the reply.
    limit: Option<u64>,
}

impl ContextBudget {
    /// Creates the budget for a context window, minus the tokens reserved for the reply.
    pub(super) fn new(window: Option<u64>, max_output_tokens: u32) -> Self {
        // Token counts are estimates, so 5 % stay free.
        let limit = |window: u64| (window - window / 20).saturating_sub(u64::from(max_output_tokens));
        Self { limit: window.map(limit) }
    }

    /// Returns the maximum size of each of `n_results` results; `None` if there is no room.
    pub(super) fn bytes_per_result(
        self,
        request: &ModelRequest,
        n_results: usize,
        max_bytes: usize,
    ) -> Option<usize> {
        let Some(limit) = self.limit else { return Some(max_bytes) };
        let n_bytes = limit.saturating_sub(request.estimated_tokens()).saturating_mul(BYTES_PER_TOKEN);
        let each = n_bytes / n_results.max(1) as u64;
        (each >= MIN_RESULT_BYTES).then(|| max_bytes.min(usize::try_from(each).unwrap_or(usize::MAX)))
    }

    /// Drops the largest results until the request fits.
    pub(super) fn fit(self, request: &mut ModelRequest) {
        let Some(limit) = self.limit else { return };
        while request.estimated_tokens() > limit && drop_largest_result(request) {}
    }
}

/// Drops the largest tool result. Returns `false` if none is left that would free context.
pub(super) fn drop_largest_result(request: &mut ModelRequest) -> bool {
    let results = request.messages.iter_mut().flat_map(|message| match message {
        ChatMessage::ToolResults(results) => results.iter_mut(),
        ChatMessage::User(_) | ChatMessage::Assistant(_) => [].iter_mut(),
    });
    let largest = results.max_by_key(|result| result.text.len());
    match largest.filter(|result: &&mut ToolResult| result.text.len() > RESULT_OMITTED.len()) {
        Some(result) => {
            RESULT_OMITTED.clone_into(&mut result.text);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::model::ToolResultStatus;

    use super::*;

    fn request(texts: &[usize]) -> ModelRequest {
        let result = |n_bytes: &usize| ToolResult {
            call_id: "1".to_owned(),
            text: "x".repeat(*n_bytes),
            status: ToolResultStatus::Done,
        };
        let messages = vec![ChatMessage::ToolResults(texts.iter().map(result).collect())];
        ModelRequest { messages, ..ModelRequest::default() }
    }

    #[test]
    fn results_share_the_remaining_context() {
        let cases = [
            (None, 2, Some(12_288)),
            (Some(100_000), 2, Some(12_288)),
            (Some(4_000), 2, Some((3_800 - 1_000 - 500) * 2)),
            (Some(2_000), 4, None),
        ];
        for (window, n_results, expected) in cases {
            let room =
                ContextBudget::new(window, 1_000).bytes_per_result(&request(&[2_000]), n_results, 12_288);
            assert_eq!(room, expected, "{window:?}");
        }
    }

    #[test]
    fn the_largest_result_is_dropped_first() {
        let mut request = request(&[4_000, 9_000, 1_000]);
        ContextBudget::new(Some(2_500), 0).fit(&mut request);
        let ChatMessage::ToolResults(results) = &request.messages[0] else { panic!("they are results") };
        let sizes: Vec<usize> = results.iter().map(|result| result.text.len()).collect();
        assert_eq!(sizes, [4_000, RESULT_OMITTED.len(), 1_000]);
        assert!(
            drop_largest_result(&mut request)
                && drop_largest_result(&mut request)
                && !drop_largest_result(&mut request)
        );
    }
}
