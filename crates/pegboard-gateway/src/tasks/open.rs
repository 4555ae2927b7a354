//! The questions of a task that its client has yet to answer.

use indexmap::IndexMap;
use pegboard_core::client::{Answers, Question};
use pegboard_json::RawJson;

use crate::visit::conversation::Round;

/// The questions that are open. Each has a name that no other question of the task has had.
#[derive(Debug, Default)]
pub(super) struct Open {
    questions: IndexMap<String, Asked>,
    /// The rounds that they came in, by number.
    rounds: IndexMap<usize, Gathering>,
    n_rounds: usize,
}

#[derive(Debug)]
struct Asked {
    round: usize,
    /// What its tool calls it.
    name: String,
    question: Question,
}

/// A round whose answers come one by one.
#[derive(Debug)]
struct Gathering {
    round: Round,
    answers: Answers,
}

impl Open {
    /// Whether nothing is asked.
    pub(super) fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Asks one more round.
    pub(super) fn ask(&mut self, round: Round) {
        let number = self.n_rounds;
        self.n_rounds += 1;
        for (name, question) in round.questions() {
            let asked = Asked { round: number, name: name.clone(), question: question.clone() };
            self.questions.insert(key(name, number), asked);
        }
        self.rounds.insert(number, Gathering { round, answers: Answers::new() });
    }

    /// Takes the answers to what is asked right now, and leaves all others; whether there were any. A tool gets its
    /// answers when all of its round are there.
    pub(super) fn answer(&mut self, answers: &RawJson) -> bool {
        let mut is_news = false;
        for key in answers.names() {
            let Some(answer) = answers.get(&key).filter(RawJson::is_object) else { continue };
            let Some(Asked { round, name, .. }) = self.questions.shift_remove(&key) else { continue };
            is_news = true;
            if let Some(gathering) = self.rounds.get_mut(&round) {
                gathering.answers.insert(name, answer);
            }
            if self.questions.values().all(|asked| asked.round != round)
                && let Some(Gathering { round, answers }) = self.rounds.shift_remove(&round)
            {
                round.finish(answers);
            }
        }
        is_news
    }

    /// The questions as the protocol writes them.
    pub(super) fn as_json(&self, dress: impl Fn(&RawJson) -> RawJson) -> RawJson {
        self.questions.iter().fold(RawJson::empty_object(), |all, (key, Asked { question, .. })| {
            let asked = RawJson::empty_object()
                .with("method", &RawJson::of(&question.method))
                .with("params", &dress(&question.params));
            all.with(key, &asked)
        })
    }
}

/// A question's name among all that a task ever asks: its own in the first round, and then with the number of the
/// round behind a mark that no other has.
fn key(name: &str, round: usize) -> String {
    if round == 0 && !name.contains('#') { name.to_owned() } else { format!("{name}#{round}") }
}
