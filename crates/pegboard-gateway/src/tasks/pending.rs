//! Questions of a task that its client has not answered yet.

use indexmap::IndexMap;
use pegboard_core::client::{InputRequest, InputResponses};
use pegboard_json::RawJson;

use crate::client_request::bridge::InputBatch;

/// Unanswered questions. Each has a key that is unique within the task.
#[derive(Debug, Default)]
pub(super) struct PendingInputs {
    questions: IndexMap<String, PendingQuestion>,
    /// Incomplete rounds, by number.
    rounds: IndexMap<usize, PartialRound>,
    n_rounds: usize,
}

#[derive(Debug)]
struct PendingQuestion {
    round: usize,
    /// Name that the tool gave it.
    name: String,
    question: InputRequest,
}

/// A round with answers arriving one by one.
#[derive(Debug)]
struct PartialRound {
    round: InputBatch,
    answers: InputResponses,
}

impl PendingInputs {
    /// Returns `true` if there are no questions.
    pub(super) fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Adds a round of questions.
    pub(super) fn ask(&mut self, round: InputBatch) {
        let number = self.n_rounds;
        self.n_rounds += 1;
        for (name, question) in round.questions() {
            let pending = PendingQuestion { round: number, name: name.clone(), question: question.clone() };
            self.questions.insert(question_key(name, number), pending);
        }
        self.rounds.insert(number, PartialRound { round, answers: InputResponses::new() });
    }

    /// Accepts answers to pending questions and ignores all others; returns `true` if there were any. A tool
    /// gets its answers once its round is complete.
    pub(super) fn answer(&mut self, answers: &RawJson) -> bool {
        let mut is_changed = false;
        for (key, answer) in answers.members().filter(|(_, answer)| answer.is_object()) {
            let Some(PendingQuestion { round, name, .. }) = self.questions.shift_remove(&key) else {
                continue;
            };
            is_changed = true;
            if let Some(partial) = self.rounds.get_mut(&round) {
                partial.answers.insert(name, answer);
            }
            if self.questions.values().all(|pending| pending.round != round)
                && let Some(PartialRound { round, answers }) = self.rounds.shift_remove(&round)
            {
                round.finish(answers);
            }
        }
        is_changed
    }

    /// Returns the questions as MCP input requests.
    pub(super) fn as_json(&self, map_params: impl Fn(&RawJson) -> RawJson) -> RawJson {
        self.questions.iter().fold(RawJson::empty_object(), |all, (key, PendingQuestion { question, .. })| {
            let request = RawJson::empty_object()
                .with("method", &RawJson::of(&question.method))
                .with("params", &map_params(&question.params));
            all.with(key, &request)
        })
    }
}

/// Returns the key of a question: its own name in the first round, and with the round number after a `#`
/// later.
fn question_key(name: &str, round: usize) -> String {
    if round == 0 && !name.contains('#') { name.to_owned() } else { format!("{name}#{round}") }
}
