//! Pagination of responses.

use pegboard_core::output::Output;
use pegboard_core::settings::rest::{PageMode, PaginationSettings};
use pegboard_json::RawJson;

use pegboard_http::{ResponseLimits, WebClient, WebRequest, WebResponse, json_output};

/// Reads further pages and concatenates them into one list. A response that is not a list is returned
/// unchanged. An unreadable page does not discard the pages before it.
pub(super) async fn read_pages(
    web: &WebClient,
    request: &WebRequest,
    first: WebResponse,
    limits: ResponseLimits,
    pages: PaginationSettings,
) -> Output {
    let PageMode::Link = pages.mode;
    let Some(mut list) = json_list(&first) else { return first.into_output() };
    let mut next = first.next_page();
    let mut n_pages = 1;
    let mut problem = None;
    while let Some(url) = next.take_if(|_| n_pages < pages.max_pages) {
        let left = limits.max_bytes.saturating_sub(list.as_bytes().len());
        let mut another = request.clone();
        another.url = url;
        match web.send(another, ResponseLimits { max_bytes: left, ..limits }).await {
            Ok(response) => match json_list(&response) {
                Some(more) => {
                    list = concat_lists(&list, &more);
                    next = response.next_page();
                }
                None => {
                    problem = Some(if response.status.is_success() {
                        "it is not a list".to_owned()
                    } else {
                        response.into_output().text().into_owned()
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

/// Returns the body if it is a JSON list.
fn json_list(response: &WebResponse) -> Option<RawJson> {
    let list = RawJson::parse(response.body.clone()).ok().filter(|body| body.as_str().starts_with('['));
    list.filter(|_| response.status.is_success())
}

/// Concatenates two lists byte by byte.
fn concat_lists(one: &RawJson, other: &RawJson) -> RawJson {
    let inside = |list: &RawJson| {
        let text = list.as_str();
        text.get(1..text.len() - 1).unwrap_or_default().trim().to_owned()
    };
    let parts: Vec<_> = [inside(one), inside(other)].into_iter().filter(|part| !part.is_empty()).collect();
    RawJson::trusted(format!("[{}]", parts.join(",")).into())
}
