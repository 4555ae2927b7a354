//! Keeps a conversation within what a model can read.

use pegboard_core::model::{Message, ModelRequest, ToolResult};

/// What an answer becomes for which there is no room.
pub(super) const NO_ROOM: &str = "(tool failed: context window budget exceeded)";
/// What is left of an answer that had to make room for others.
const LEFT_OUT: &str =
    "(left out: the conversation is too long for all answers; call the tool again if you need this one)";
/// The least that is worth handing over of an answer.
const MIN_ANSWER_BYTES: u64 = 1_024;
/// How many bytes a token is, roughly.
const BYTES_PER_TOKEN: u64 = 4;

/// How much a model can read, as far as somebody said so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    /// Tokens of a whole request, without what the model writes.
    limit: Option<u64>,
}

impl Guard {
    /// A guard for a window of so many tokens, some of which are for what the model writes.
    pub(super) fn new(window: Option<u64>, max_output_tokens: u32) -> Self {
        // Tokens are only guessed, so a twentieth is left free.
        let limit = |window: u64| (window - window / 20).saturating_sub(u64::from(max_output_tokens));
        Self { limit: window.map(limit) }
    }

    /// How many bytes each of some answers may have; `None` if there is no room for them.
    pub(super) fn room(self, request: &ModelRequest, n_answers: usize, most: usize) -> Option<usize> {
        let Some(limit) = self.limit else { return Some(most) };
        let n_bytes = limit.saturating_sub(request.estimated_tokens()).saturating_mul(BYTES_PER_TOKEN);
        let each = n_bytes / n_answers.max(1) as u64;
        (each >= MIN_ANSWER_BYTES).then(|| most.min(usize::try_from(each).unwrap_or(usize::MAX)))
    }

    /// Leaves out the largest answers until the request fits.
    pub(super) fn fit(self, request: &mut ModelRequest) {
        let Some(limit) = self.limit else { return };
        while request.estimated_tokens() > limit && shrink(request) {}
    }
}

/// Leaves out the largest answer of a tool; `false` if there is none left that is worth it.
pub(super) fn shrink(request: &mut ModelRequest) -> bool {
    let results = request.messages.iter_mut().flat_map(|message| match message {
        Message::ToolResults(results) => results.iter_mut(),
        Message::User(_) | Message::Assistant(_) => [].iter_mut(),
    });
    let largest = results.max_by_key(|result| result.text.len());
    match largest.filter(|result: &&mut ToolResult| result.text.len() > LEFT_OUT.len()) {
        Some(result) => {
            LEFT_OUT.clone_into(&mut result.text);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use pegboard_core::model::Verdict;

    use super::*;

    fn request(texts: &[usize]) -> ModelRequest {
        let result = |n_bytes: &usize| ToolResult {
            call_id: "1".to_owned(),
            text: "x".repeat(*n_bytes),
            verdict: Verdict::Done,
        };
        let messages = vec![Message::ToolResults(texts.iter().map(result).collect())];
        ModelRequest { messages, ..ModelRequest::default() }
    }

    #[test]
    fn answers_share_the_room_that_is_left() {
        let cases = [
            (None, 2, Some(12_288)),
            (Some(100_000), 2, Some(12_288)),
            (Some(4_000), 2, Some((3_800 - 1_000 - 500) * 2)),
            (Some(2_000), 4, None),
        ];
        for (window, n_answers, expected) in cases {
            let room = Guard::new(window, 1_000).room(&request(&[2_000]), n_answers, 12_288);
            assert_eq!(room, expected, "{window:?}");
        }
    }

    #[test]
    fn the_largest_answer_makes_room_first() {
        let mut request = request(&[4_000, 9_000, 1_000]);
        Guard::new(Some(2_500), 0).fit(&mut request);
        let Message::ToolResults(results) = &request.messages[0] else { panic!("they are results") };
        let sizes: Vec<usize> = results.iter().map(|result| result.text.len()).collect();
        assert_eq!(sizes, [4_000, LEFT_OUT.len(), 1_000]);
        assert!(shrink(&mut request) && shrink(&mut request) && !shrink(&mut request));
    }
}
