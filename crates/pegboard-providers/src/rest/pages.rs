//! Further pages of an answer.

use pegboard_core::output::Output;
use pegboard_core::settings::rest::{PageMode, PaginationSettings};
use pegboard_json::RawJson;

use crate::web::{Answer, Limits, Outgoing, Web, json_output};

/// Reads on from the first page as far as is wanted, and makes one list of all. An answer that is no list is handed on
/// as it is. Pages that cannot be read do not spoil those that were.
pub(super) async fn read_on(
    web: &Web,
    outgoing: &Outgoing,
    first: Answer,
    limits: Limits,
    pages: PaginationSettings,
) -> Output {
    let PageMode::Link = pages.mode;
    let Some(mut list) = list_of(&first) else { return first.into_output() };
    let mut next = first.next_page();
    let mut n_pages = 1;
    let mut problem = None;
    while let Some(url) = next.take_if(|_| n_pages < pages.max_pages) {
        let left = limits.max_bytes.saturating_sub(list.as_bytes().len());
        let mut another = outgoing.clone();
        another.url = url;
        match web.send(another, Limits { max_bytes: left, ..limits }).await {
            Ok(answer) => match list_of(&answer) {
                Some(more) => {
                    list = joined(&list, &more);
                    next = answer.next_page();
                }
                None => {
                    problem = Some(if answer.status.is_success() {
                        "it is no list".to_owned()
                    } else {
                        answer.into_output().text().into_owned()
                    });
                }
            },
            Err(error) => problem = Some(error.to_string()),
        }
        if problem.is_some() {
            break;
        }
        n_pages += 1;
    }
    let note = match (problem, next) {
        (Some(problem), _) => Some(format!("Page {} could not be read: {problem}", n_pages + 1)),
        (None, Some(_)) => Some(format!("There are more pages; {n_pages} were read.")),
        (None, None) => None,
    };
    json_output(&list, note.as_deref())
}

/// The list that is an answer.
fn list_of(answer: &Answer) -> Option<RawJson> {
    let list = RawJson::parse(answer.body.clone()).ok().filter(|body| body.as_str().starts_with('['));
    list.filter(|_| answer.status.is_success())
}

/// Two lists as one, in the bytes they came in.
fn joined(one: &RawJson, other: &RawJson) -> RawJson {
    let inside = |list: &RawJson| {
        let text = list.as_str();
        text.get(1..text.len() - 1).unwrap_or_default().trim().to_owned()
    };
    let parts: Vec<_> = [inside(one), inside(other)].into_iter().filter(|part| !part.is_empty()).collect();
    RawJson::trusted(format!("[{}]", parts.join(",")).into())
}
