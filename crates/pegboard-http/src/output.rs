//! Converts responses of web services to tool outputs.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use pegboard_core::fingerprint::sha256_hex;
use pegboard_core::output::Output;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use crate::WebResponse;

/// Maximum size of an error body in the output.
const MAX_ERROR_BODY_BYTES: usize = 4 * 1024;

impl WebResponse {
    /// Converts the response: JSON to text and structured content, text to text, images and audio to their
    /// content types, and everything else to an embedded resource. A status other than 2xx becomes an error
    /// with a clipped body.
    pub fn into_output(self) -> Output {
        if !self.status.is_success() {
            return Output::failure(self.failure_text());
        }
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Output::new(
                format!("HTTP {}: done, with an empty response.", self.status.as_u16()).into(),
            );
        }
        let media = MediaType::of(&self);
        if media.may_be_json()
            && let Ok(data) = RawJson::parse(strip_bom(&self.body))
        {
            return json_output(&data, None);
        }
        match media.class() {
            ContentClass::Text => Output::new(media.text(&self.body).into_owned().into()),
            ContentClass::Image => content_output(
                &json!({"type": "image", "data": base64(&self.body), "mimeType": media.essence}),
            ),
            ContentClass::Audio => content_output(
                &json!({"type": "audio", "data": base64(&self.body), "mimeType": media.essence}),
            ),
            ContentClass::Unspecified if str::from_utf8(&self.body).is_ok() => {
                Output::new(media.text(&self.body).into_owned().into())
            }
            ContentClass::Unspecified | ContentClass::Other => content_output(&json!({
                "type": "resource",
                "resource": {"uri": content_uri(&self.body), "mimeType": media.essence, "blob": base64(&self.body)},
            })),
        }
    }

    fn failure_text(&self) -> String {
        let mut text = format!("HTTP {}: ", self.status.as_u16());
        let media = MediaType::of(self);
        let is_text =
            matches!(media.class(), ContentClass::Text | ContentClass::Unspecified) || media.may_be_json();
        if self.body.is_empty() {
            text.push_str(self.status.canonical_reason().unwrap_or("no details"));
        } else if is_text {
            let whole = media.text(&self.body);
            let clipped = &whole[..whole.floor_char_boundary(MAX_ERROR_BODY_BYTES)];
            text.push_str(clipped);
            if clipped.len() < whole.len() {
                let _ = write!(text, "… ({} bytes in total)", self.body.len());
            }
        } else {
            let _ = write!(text, "({} bytes of {})", self.body.len(), media.essence);
        }
        if let (429 | 503, Some(wait)) = (self.status.as_u16(), self.retry_after()) {
            let _ = write!(text, " (retry after {} s)", wait.as_secs());
        }
        text
    }
}

/// Media type of a body.
struct MediaType {
    /// Type and subtype, in lower case.
    essence: String,
    /// Character set, in lower case.
    charset: String,
}

/// Class of content.
enum ContentClass {
    Text,
    Image,
    Audio,
    /// No content type was sent, or `application/octet-stream`.
    Unspecified,
    Other,
}

impl MediaType {
    fn of(response: &WebResponse) -> Self {
        let content_type =
            response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = content_type.to_ascii_lowercase();
        let (essence, parameters) = content_type.split_once(';').unwrap_or((&content_type, ""));
        let charset = parameters
            .split(';')
            .find_map(|parameter| parameter.trim().strip_prefix("charset="))
            .unwrap_or("");
        let essence = match essence.trim() {
            "" => "application/octet-stream",
            essence => essence,
        };
        Self { essence: essence.to_owned(), charset: charset.trim_matches('"').to_owned() }
    }

    fn may_be_json(&self) -> bool {
        matches!(self.essence.as_str(), "application/json" | "text/json" | "application/octet-stream")
            || self.essence.ends_with("+json")
    }

    fn class(&self) -> ContentClass {
        match self.essence.split_once('/').unwrap_or_default() {
            ("application", "octet-stream") => ContentClass::Unspecified,
            // SVG is an image as well.
            ("image", _) => ContentClass::Image,
            ("audio", _) => ContentClass::Audio,
            ("text", _) => ContentClass::Text,
            ("application", kind)
                if [
                    "json",
                    "xml",
                    "yaml",
                    "javascript",
                    "x-www-form-urlencoded",
                    "graphql",
                    "sql",
                    "toml",
                ]
                .iter()
                .any(|text| kind.contains(text)) =>
            {
                ContentClass::Text
            }
            _ => ContentClass::Other,
        }
    }

    fn text<'b>(&self, body: &'b Bytes) -> Cow<'b, str> {
        match self.charset.as_str() {
            "iso-8859-1" | "latin1" | "windows-1252" | "cp1252" => {
                body.iter().copied().map(windows_1252).collect()
            }
            _ => match str::from_utf8(body) {
                Ok(text) => Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text)),
                Err(_) => String::from_utf8_lossy(body),
            },
        }
    }
}

/// Decodes a byte of windows-1252. ISO 8859-1 is read as such too, as the Encoding Standard requires: it differs
/// only in control characters.
fn windows_1252(byte: u8) -> char {
    const FROM_0X80: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
        '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    match byte {
        0x80..=0x9f => FROM_0X80[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

/// Removes a UTF-8 byte order mark.
fn strip_bom(body: &Bytes) -> Bytes {
    let mark = "\u{feff}".len();
    if body.starts_with("\u{feff}".as_bytes()) { body.slice(mark..) } else { body.clone() }
}

/// Creates an output with JSON as text and structured content, both verbatim, and an optional note after the
/// text.
pub fn json_output(data: &RawJson, note: Option<&str>) -> Output {
    let text = RawJson::of(data.as_str());
    let note = note.map(|note| format!(",{}", RawJson::of(&json!({"type": "text", "text": note})).as_str()));
    let result = [
        r#"{"content":[{"type":"text","text":"#,
        text.as_str(),
        "}",
        note.as_deref().unwrap_or_default(),
        r#"],"structuredContent":"#,
        data.as_str(),
        "}",
    ];
    Output::result(RawJson::trusted(result.concat().into()))
}

fn content_output(part: &Value) -> Output {
    Output::result(RawJson::of(&json!({"content": [part]})))
}

fn base64(body: &Bytes) -> String {
    STANDARD.encode(body)
}

/// Creates a URI for a body from its hash. Its URL may contain secrets.
fn content_uri(body: &Bytes) -> String {
    format!("urn:sha256:{}", sha256_hex(body))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn result(status: u16, content_type: &str, body: impl Into<Bytes>) -> String {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        }
        let url = "https://api.example.org/secret".parse().unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        WebResponse { status, headers, body: body.into(), url }.into_output().to_result().as_str().to_owned()
    }

    #[test]
    fn json_is_returned_verbatim_as_text_and_data() {
        for content_type in ["application/json", "application/problem+json; charset=utf-8", "text/json", ""] {
            insta::allow_duplicates! {
                insta::assert_snapshot!(result(200, content_type, r#"{"n": 1.10, "big": 12345678901234567890123}"#), @r#"{"content":[{"type":"text","text":"{\"n\": 1.10, \"big\": 12345678901234567890123}"}],"structuredContent":{"n": 1.10, "big": 12345678901234567890123}}"#);
            }
        }
        insta::assert_snapshot!(result(200, "application/json", "\u{feff}[1, 2]"), @r#"{"content":[{"type":"text","text":"[1, 2]"}],"structuredContent":[1, 2]}"#);
        insta::assert_snapshot!(result(200, "application/json", "{broken"), @r#"{"content":[{"type":"text","text":"{broken"}]}"#);
    }

    #[test]
    fn other_media_types_become_matching_content() {
        insta::assert_snapshot!(result(200, "text/html", "<p>hello</p>"), @r#"{"content":[{"type":"text","text":"<p>hello</p>"}]}"#);
        insta::assert_snapshot!(result(200, "text/plain; charset=ISO-8859-1", &b"caf\xe9"[..]), @r#"{"content":[{"type":"text","text":"café"}]}"#);
        insta::assert_snapshot!(result(200, "text/plain; charset=windows-1252", &b"\x93caf\xe9\x94 5 \x80"[..]), @r#"{"content":[{"type":"text","text":"“café” 5 €"}]}"#);
        insta::assert_snapshot!(result(200, "", "plain words"), @r#"{"content":[{"type":"text","text":"plain words"}]}"#);
        insta::assert_snapshot!(result(200, "image/png", &[137, 80, 78, 71][..]), @r#"{"content":[{"type":"image","data":"iVBORw==","mimeType":"image/png"}]}"#);
        insta::assert_snapshot!(result(200, "audio/mpeg", &[1, 2, 3][..]), @r#"{"content":[{"type":"audio","data":"AQID","mimeType":"audio/mpeg"}]}"#);
        insta::assert_snapshot!(result(200, "application/pdf", "%PDF"), @r#"{"content":[{"type":"resource","resource":{"uri":"urn:sha256:315d429b7714cedb6ad04ac31240145257692630457f3c88253c5beceac76027","mimeType":"application/pdf","blob":"JVBERg=="}}]}"#);
        insta::assert_snapshot!(result(204, "", ""), @r#"{"content":[{"type":"text","text":"HTTP 204: done, with an empty response."}]}"#);
    }

    #[test]
    fn an_error_status_is_a_failure_with_its_body() {
        insta::assert_snapshot!(result(404, "text/plain", "nope"), @r#"{"content":[{"type":"text","text":"HTTP 404: nope"}],"isError":true}"#);
        insta::assert_snapshot!(result(500, "", ""), @r#"{"content":[{"type":"text","text":"HTTP 500: Internal Server Error"}],"isError":true}"#);
        insta::assert_snapshot!(result(502, "image/png", &[1, 2, 3][..]), @r#"{"content":[{"type":"text","text":"HTTP 502: (3 bytes of image/png)"}],"isError":true}"#);
        let long = result(400, "text/plain", "é".repeat(5_000));
        assert!(long.len() < 4_300 && long.contains("… (10000 bytes in total)"), "{long}");
    }
}
