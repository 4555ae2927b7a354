//! What the signature of a tool says: its parameters, its answer, and whether it can fail.

use std::mem;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, FnArg, GenericArgument, GenericParam, Ident, Pat, PatType, PathArguments, ReturnType, Safety,
    Signature, Type, parse_quote,
};

use crate::mistakes::Mistakes;

/// A function as a caller of the tool sees it.
pub(crate) struct Function {
    pub(crate) input: Input,
    pub(crate) answer: Answer,
}

/// Where the arguments go.
pub(crate) enum Input {
    /// One key each.
    Parameters(Vec<Parameter>),
    /// The whole object to one parameter of this type, marked `#[arguments]`.
    Whole(Box<Type>),
}

/// One parameter, which is one key of the argument object.
pub(crate) struct Parameter {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// Its doc comment and its `#[serde(…)]` and `#[schemars(…)]`.
    pub(crate) attributes: Vec<Attribute>,
}

/// What comes back.
pub(crate) struct Answer {
    pub(crate) ty: Type,
    /// Where the error is named, if the answer comes in a `Result`.
    pub(crate) error: Option<Type>,
}

impl Function {
    /// Reads the signature and takes out of it what Rust does not allow there. `None` if there are mistakes
    /// that leave nothing to make a tool of.
    pub(crate) fn read(signature: &mut Signature, mistakes: &mut Mistakes) -> Option<Self> {
        check_qualifiers(signature, mistakes);
        let input = read_input(signature, mistakes);
        let answer = read_answer(&signature.output, mistakes)?;
        Some(Self { input, answer })
    }

    /// Notes attributes that say something about a schema that is not derived.
    pub(crate) fn refuse_schemars(&self, mistakes: &mut Mistakes) {
        let Input::Parameters(parameters) = &self.input else { return };
        for attribute in parameters.iter().flat_map(|parameter| &parameter.attributes) {
            if attribute.path().is_ident("schemars") {
                mistakes.at(attribute, "`input_schema` says what the parameters look like: remove this");
            }
        }
    }
}

impl Answer {
    /// Whether there is nothing to say about it.
    pub(crate) fn is_unit(&self) -> bool {
        matches!(&self.ty, Type::Tuple(tuple) if tuple.elems.is_empty())
    }
}

fn check_qualifiers(signature: &Signature, mistakes: &mut Mistakes) {
    if let Some(token) = &signature.constness {
        mistakes.at(token, "a tool runs when it is called: remove `const`");
    }
    if let Safety::Unsafe(token) = &signature.safety {
        mistakes.at(token, "anyone may call a tool, so it cannot be `unsafe`: put the unsafe part inside it");
    }
    if let Some(abi) = &signature.abi {
        mistakes.at(abi, "a tool is an ordinary Rust function: remove `extern`");
    }
    if let Some(variadic) = &signature.variadic {
        mistakes.at(variadic, "a tool has a fixed list of parameters: take a `Vec` instead of `...`");
    }
    if let Some(receiver) = signature.receiver() {
        let message = "a method cannot be a tool: write a free function, or give `ToolEntry::new` a closure that \
                       holds the value";
        mistakes.at(receiver, message);
    }
    for parameter in &signature.generics.params {
        match parameter {
            GenericParam::Lifetime(_) => {
                mistakes.at(parameter, "a tool owns its arguments: remove the lifetime");
            }
            GenericParam::Type(_) | GenericParam::Const(_) => {
                mistakes.at(parameter, "a tool cannot be generic, it has one schema: choose the type");
            }
        }
    }
}

fn read_input(signature: &mut Signature, mistakes: &mut Mistakes) -> Input {
    let is_alone = signature.inputs.len() == 1;
    let mut parameters = Vec::new();
    for input in &mut signature.inputs {
        let FnArg::Typed(input) = input else { continue };
        check_type(&input.ty, mistakes);
        let attributes = take_attributes(input, mistakes);
        match attributes.iter().find(|attribute| attribute.path().is_ident("arguments")) {
            Some(_) if is_alone => return read_whole(&input.ty, &attributes, mistakes),
            Some(mark) => {
                mistakes.at(mark, "`#[arguments]` takes all arguments: make this the only parameter");
            }
            None => {
                let ty = (*input.ty).clone();
                parameters.extend(read_name(input, mistakes).map(|name| Parameter { name, ty, attributes }));
            }
        }
    }
    Input::Parameters(parameters)
}

fn read_whole(ty: &Type, attributes: &[Attribute], mistakes: &mut Mistakes) -> Input {
    for attribute in attributes {
        if attribute.path().is_ident("serde") || attribute.path().is_ident("schemars") {
            mistakes.at(attribute, "the type of `#[arguments]` speaks for itself: move this to the type");
        }
    }
    Input::Whole(Box::new(ty.clone()))
}

/// Takes the attributes that are meant for us out of the signature.
fn take_attributes(input: &mut PatType, mistakes: &mut Mistakes) -> Vec<Attribute> {
    let is = |attribute: &Attribute, names: &[&str]| names.iter().any(|name| attribute.path().is_ident(name));
    for attribute in &input.attrs {
        if is(attribute, &["cfg", "cfg_attr"]) {
            mistakes.at(attribute, "a parameter is always there: put the condition on the function");
        } else if is(attribute, &["serde"]) && words(attribute).iter().any(|word| word == "flatten") {
            mistakes.at(attribute, "callers may give no other keys: take one type, marked `#[arguments]`");
        }
    }
    let (ours, theirs) = mem::take(&mut input.attrs)
        .into_iter()
        .partition(|attribute| is(attribute, &["doc", "serde", "schemars", "arguments"]));
    input.attrs = theirs;
    ours
}

fn read_name(input: &PatType, mistakes: &mut Mistakes) -> Option<Ident> {
    match &*input.pat {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Some(name.ident.clone()),
        Pat::Wild(pattern) => {
            mistakes.at(pattern, "callers need a name for this: give it one, or leave it out");
            None
        }
        pattern => {
            mistakes.at(pattern, "callers need a name for this: give it one, and take it apart in the body");
            None
        }
    }
}

fn check_type(ty: &Type, mistakes: &mut Mistakes) {
    if let Some(token) = unnamed(ty) {
        mistakes.at(token, "a tool must know what to read from its arguments: name a type instead of `impl`");
    } else if let Type::Reference(reference) = bare(ty) {
        mistakes.at(ty, format_args!("take {}: a tool owns its arguments", owned(&reference.elem)));
    } else if borrows(ty) {
        mistakes.at(ty, "take something that borrows nothing, such as `String`: a tool owns its arguments");
    }
}

/// What to take instead of a reference to `target`.
fn owned(target: &Type) -> &'static str {
    match target {
        Type::Slice(_) => "a `Vec`",
        Type::Path(target) if target.path.is_ident("str") => "`String`",
        Type::Path(target) if target.path.is_ident("Path") => "`PathBuf`",
        _ => "it by value",
    }
}

fn read_answer(output: &ReturnType, mistakes: &mut Mistakes) -> Option<Answer> {
    let ReturnType::Type(_, ty) = output else {
        return Some(Answer { ty: parse_quote!(()), error: None });
    };
    if let Some(token) = unnamed(ty) {
        mistakes.at(token, "callers need to know what they get: name a type instead of `impl`");
        return None;
    }
    let ty = bare(ty);
    let last = match ty {
        Type::Path(path) => path.path.segments.last().filter(|segment| segment.ident == "Result"),
        _ => None,
    };
    let Some(result) = last else { return Some(Answer { ty: ty.clone(), error: None }) };
    if let PathArguments::AngleBracketed(arguments) = &result.arguments
        && let Some(GenericArgument::Type(answer)) = arguments.args.first()
    {
        let error = match arguments.args.get(1) {
            Some(GenericArgument::Type(error)) => error,
            _ => ty,
        };
        return Some(Answer { ty: bare(answer).clone(), error: Some(error.clone()) });
    }
    mistakes.at(ty, "say what the tool answers with: `Result<f64>`, or `Result<()>` for nothing");
    None
}

/// The type without parentheses and without the invisible group that a `macro_rules!` fragment comes in.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        other => other,
    }
}

/// The first `impl` in a type, which is a type without a name.
fn unnamed(ty: &Type) -> Option<TokenTree> {
    tokens(ty.to_token_stream()).into_iter().find(|token| token.to_string() == "impl")
}

/// Whether a type refers to something that it does not own.
fn borrows(ty: &Type) -> bool {
    let words = words(ty);
    words.iter().any(|word| word == "&") || words.windows(2).any(|pair| pair[0] == "'" && pair[1] != "static")
}

fn words(source: &impl ToTokens) -> Vec<String> {
    tokens(source.to_token_stream()).iter().map(ToString::to_string).collect()
}

/// All tokens, also those inside brackets.
fn tokens(stream: TokenStream) -> Vec<TokenTree> {
    let inside = |token| match token {
        TokenTree::Group(group) => tokens(group.stream()),
        other => vec![other],
    };
    stream.into_iter().flat_map(inside).collect()
}
