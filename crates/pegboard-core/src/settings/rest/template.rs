//! Templates with parameters for texts, URLs and bodies.

use std::fmt;

use serde_json::Value;

/// Start of a placeholder.
const OPEN: &str = "${parameters.";

/// A string with placeholders, such as `Bearer ${parameters.token}`. It may hold secrets, so `Debug` omits
/// it.
///
/// ```
/// use pegboard_core::settings::rest::{TemplatePart, TextTemplate};
///
/// let template = TextTemplate::parse("a ${parameters.name}!").unwrap();
/// assert!(matches!(template.parts(), [TemplatePart::Text(_), TemplatePart::Parameter(name), TemplatePart::Text(_)] if name == "name"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TextTemplate(Vec<TemplatePart>);

/// Part of a template.
#[derive(Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Literal text.
    Text(String),
    /// Placeholder for a parameter.
    Parameter(String),
}

impl TextTemplate {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (name, tail) = after.split_once('}').ok_or(InvalidTemplate::Unclosed)?;
            if name.is_empty() {
                return Err(InvalidTemplate::MissingName);
            }
            if !before.is_empty() {
                parts.push(TemplatePart::Text(before.to_owned()));
            }
            parts.push(TemplatePart::Parameter(name.to_owned()));
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Returns the parts in order.
    pub fn parts(&self) -> &[TemplatePart] {
        &self.0
    }

    /// Returns the parameter, if the template is a single placeholder.
    pub fn single_parameter(&self) -> Option<&str> {
        match self.0.as_slice() {
            [TemplatePart::Parameter(name)] => Some(name),
            _ => None,
        }
    }

    /// Returns the parameters of the template.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Parameter(name) => Some(name.as_str()),
            TemplatePart::Text(_) => None,
        })
    }

    /// Splits the template at a separator in its literal text.
    fn split(&self, separator: char) -> Vec<Self> {
        let mut pieces = vec![Self::default()];
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => {
                    for (index, piece) in text.split(separator).enumerate() {
                        if index > 0 {
                            pieces.push(Self::default());
                        }
                        if let Some(last) = pieces.last_mut().filter(|_| !piece.is_empty()) {
                            last.0.push(TemplatePart::Text(piece.to_owned()));
                        }
                    }
                }
                TemplatePart::Parameter(_) => {
                    if let Some(last) = pieces.last_mut() {
                        last.0.push(part.clone());
                    }
                }
            }
        }
        pieces
    }

    /// Splits the template at the first separator in its literal text, if there is one.
    fn split_once(&self, separator: char) -> (Self, Option<Self>) {
        for (index, part) in self.0.iter().enumerate() {
            if let TemplatePart::Text(text) = part
                && let Some((before, after)) = text.split_once(separator)
            {
                let texts = |text: &str| (!text.is_empty()).then(|| TemplatePart::Text(text.to_owned()));
                let head = self.0[..index].iter().cloned().chain(texts(before)).collect();
                let tail = texts(after).into_iter().chain(self.0[index + 1..].iter().cloned()).collect();
                return (Self(head), Some(Self(tail)));
            }
        }
        (self.clone(), None)
    }
}

impl fmt::Debug for TextTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextTemplate")
    }
}

/// A URL with placeholders in its path and query. The host is always literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    /// Scheme, host and port.
    pub origin: String,
    /// Path segments; each stays one segment regardless of its parameters.
    pub path: Vec<TextTemplate>,
    /// Query pairs.
    pub query: Vec<TextTemplate>,
}

impl UrlTemplate {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let text = text.trim();
        let n_scheme = ["https://", "http://"].into_iter().find_map(|scheme| {
            text.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme)).map(str::len)
        });
        let n_scheme = n_scheme.ok_or(InvalidTemplate::NotHttp)?;
        let template = TextTemplate::parse(text)?;
        let is_invalid = |each: char| each.is_control() || each == '\\';
        if template.0.iter().any(|part| matches!(part, TemplatePart::Text(text) if text.contains(is_invalid)))
        {
            return Err(InvalidTemplate::InvalidCharacter);
        }
        let host = text[n_scheme..].split(['/', '?', '#']).next().unwrap_or_default();
        if host.contains("${") {
            return Err(InvalidTemplate::HostParameter);
        }
        if host.is_empty() {
            return Err(InvalidTemplate::NotHttp);
        }
        if host.contains('@') {
            return Err(InvalidTemplate::Credentials);
        }
        let origin = text[..n_scheme + host.len()].to_owned();
        let (template, fragment) = TextTemplate::parse(&text[origin.len()..])?.split_once('#');
        if fragment.is_some() {
            return Err(InvalidTemplate::Fragment);
        }
        let (path, query) = template.split_once('?');
        let mut path = path.split('/');
        // The segment before the first slash is empty.
        path.remove(0);
        let query = query.map(|query| query.split('&')).unwrap_or_default();
        Ok(Self { origin, path, query: query.into_iter().filter(|pair| !pair.0.is_empty()).collect() })
    }

    /// Returns the parameters of the URL.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.path.iter().chain(&self.query).flat_map(TextTemplate::parameters)
    }
}

/// A body with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyTemplate {
    /// Plain text.
    Text(TextTemplate),
    /// JSON data.
    Data(DataTemplate),
}

/// A JSON value with placeholders in its strings. `Debug` omits its content.
#[derive(Clone, PartialEq)]
pub enum DataTemplate {
    /// A constant value.
    Constant(Value),
    /// A string; a single placeholder becomes the argument itself, of any type.
    Text(TextTemplate),
    /// A list.
    List(Vec<DataTemplate>),
    /// An object.
    Object(Vec<(String, DataTemplate)>),
}

impl BodyTemplate {
    /// Parses a body.
    pub fn parse(body: &Value) -> Result<Self, InvalidTemplate> {
        match body {
            Value::String(text) => TextTemplate::parse(text).map(Self::Text),
            other => DataTemplate::parse(other).map(Self::Data),
        }
    }

    /// Returns the parameters of the body.
    pub fn parameters(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => text.parameters().collect(),
            Self::Data(data) => data.parameters(),
        }
    }
}

impl DataTemplate {
    fn parse(value: &Value) -> Result<Self, InvalidTemplate> {
        Ok(match value {
            Value::String(text) => Self::Text(TextTemplate::parse(text)?),
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| Ok((name.clone(), Self::parse(value)?)));
                Self::Object(members.collect::<Result<_, _>>()?)
            }
            constant => Self::Constant(constant.clone()),
        })
    }

    fn parameters(&self) -> Vec<&str> {
        match self {
            Self::Constant(_) => Vec::new(),
            Self::Text(text) => text.parameters().collect(),
            Self::List(items) => items.iter().flat_map(Self::parameters).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, value)| value.parameters()).collect(),
        }
    }
}

impl fmt::Debug for DataTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataTemplate")
    }
}

/// Reason why a text is not a valid template. Messages do not quote the text, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A placeholder is not closed.
    #[error("unclosed ${{parameters.: end it with }}")]
    Unclosed,
    /// A placeholder has no name.
    #[error("${{parameters.}} has no name")]
    MissingName,
    /// The URL is not an HTTP URL.
    #[error("invalid URL: expected one such as https://example.com/things")]
    NotHttp,
    /// A placeholder in the host would let the caller choose the server.
    #[error("a parameter is not allowed in the host or port: callers could choose the server")]
    HostParameter,
    /// The URL contains credentials.
    #[error("credentials are not allowed in the URL: use an Authorization header")]
    Credentials,
    /// The URL has a fragment, which is never sent.
    #[error("a URL fragment is never sent: remove the part from # on")]
    Fragment,
    /// The URL has characters that programs interpret differently.
    #[error("a URL must not contain line breaks, other control characters or backslashes")]
    InvalidCharacter,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &TextTemplate) -> String {
        let parts = template.parts().iter().map(|part| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Parameter(name) => format!("<{name}>"),
        });
        parts.collect()
    }

    #[test]
    fn a_url_is_split_before_parameters_are_inserted() {
        let check = |text: &str| {
            let url = UrlTemplate::parse(text).map_err(|error| format!("{error:?}"))?;
            let all = |list: &[TextTemplate]| list.iter().map(shown).collect::<Vec<_>>().join(" , ");
            Ok::<_, String>(format!("{} | {} | {}", url.origin, all(&url.path), all(&url.query)))
        };
        let cases = [
            ("https://x.org", Ok("https://x.org |  | ")),
            ("HTTPS://x.org:8080/", Ok("HTTPS://x.org:8080 |  | ")),
            ("https://x.org/u/${parameters.id}", Ok("https://x.org | u , <id> | ")),
            ("https://x.org/a${parameters.b/?&c}d", Ok("https://x.org | a<b/?&c>d | ")),
            (
                "https://x.org/a/?q=${parameters.q}&k=1&&${parameters.r}",
                Ok("https://x.org | a ,  | q=<q> , k=1 , <r>"),
            ),
            ("https://x.org?q=${parameters.q}", Ok("https://x.org |  | q=<q>")),
            ("http://127.0.0.1/?a=b?c", Ok("http://127.0.0.1 |  | a=b?c")),
            ("https://${parameters.host}/", Err("HostParameter")),
            ("https://x.org:${parameters.port}/", Err("HostParameter")),
            ("https://x.${parameters.tld}", Err("HostParameter")),
            ("${parameters.scheme}://x.org/", Err("NotHttp")),
            ("ftp://x.org/", Err("NotHttp")),
            ("x.org/y", Err("NotHttp")),
            ("https:///x", Err("NotHttp")),
            ("https://u:p@x.org/", Err("Credentials")),
            ("https://x.org/#part", Err("Fragment")),
            ("https://x.org\\@y.org/", Err("InvalidCharacter")),
            ("https://x.org/\n", Ok("https://x.org |  | ")),
            ("https://x.org/a\tb", Err("InvalidCharacter")),
            ("https://x.org/${parameters.id", Err("Unclosed")),
            ("https://x.org/${parameters.}", Err("MissingName")),
        ];
        for (text, expected) in cases {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(check(text), expected, "{text}");
        }
    }

    #[test]
    fn incomplete_placeholders_are_text() {
        for text in ["", "$", "${", "${parameters", "${parameter.x}", "$parameters.x", "}{"] {
            let template = TextTemplate::parse(text).unwrap();
            assert_eq!((shown(&template).as_str(), template.parameters().count()), (text, 0));
        }
    }
}
