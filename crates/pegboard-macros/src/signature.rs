//! Parsing of a tool's signature: parameters, output, error type.

use std::mem;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, FnArg, GenericArgument, GenericParam, Ident, Pat, PatType, PathArguments, ReturnType, Safety,
    Signature, Type, parse_quote,
};

use crate::errors::Errors;

/// Signature of a tool as its callers see it.
pub(crate) struct ToolSignature {
    pub(crate) input: ToolInput,
    pub(crate) output: ReturnValue,
}

/// Target of the arguments.
pub(crate) enum ToolInput {
    /// One key per parameter.
    Parameters(Vec<ToolParameter>),
    /// The whole object goes to one parameter of this type, marked `#[arguments]`.
    Whole(Box<Type>),
}

/// A parameter, which is one key of the argument object.
pub(crate) struct ToolParameter {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// Doc comment, `#[serde(…)]` and `#[schemars(…)]` attributes.
    pub(crate) attributes: Vec<Attribute>,
}

/// Return type of a tool.
pub(crate) struct ReturnValue {
    pub(crate) ty: Type,
    /// Error type, if the function returns a `Result`.
    pub(crate) error: Option<Type>,
}

impl ToolSignature {
    /// Parses the signature and removes the attributes that Rust does not allow there. Returns `None` if
    /// errors leave nothing to make a tool of.
    pub(crate) fn read(signature: &mut Signature, errors: &mut Errors) -> Option<Self> {
        check_qualifiers(signature, errors);
        let input = read_input(signature, errors);
        let output = read_output(&signature.output, errors)?;
        Some(Self { input, output })
    }

    /// Reports `#[schemars]` attributes on parameters, which have no effect with an explicit schema.
    pub(crate) fn reject_schemars(&self, errors: &mut Errors) {
        let ToolInput::Parameters(parameters) = &self.input else { return };
        for attribute in parameters.iter().flat_map(|parameter| &parameter.attributes) {
            if attribute.path().is_ident("schemars") {
                errors.push_spanned(attribute, "`input_schema` already defines the parameters: remove this");
            }
        }
    }
}

impl ReturnValue {
    /// Returns `true` for `()`.
    pub(crate) fn is_unit(&self) -> bool {
        matches!(&self.ty, Type::Tuple(tuple) if tuple.elems.is_empty())
    }
}

fn check_qualifiers(signature: &Signature, errors: &mut Errors) {
    if let Some(token) = &signature.constness {
        errors.push_spanned(token, "a tool runs when it is called: remove `const`");
    }
    if let Safety::Unsafe(token) = &signature.safety {
        errors.push_spanned(token, "a tool can be called by any client, so it cannot be `unsafe`: move the unsafe code into its body");
    }
    if let Some(abi) = &signature.abi {
        errors.push_spanned(abi, "a tool is an ordinary Rust function: remove `extern`");
    }
    if let Some(variadic) = &signature.variadic {
        errors.push_spanned(variadic, "a tool has a fixed list of parameters: take a `Vec` instead of `...`");
    }
    if let Some(receiver) = signature.receiver() {
        let message = "a method cannot be a tool: write a free function, or pass a closure that holds the value to \
                       `ToolEntry::new`";
        errors.push_spanned(receiver, message);
    }
    for parameter in &signature.generics.params {
        match parameter {
            GenericParam::Lifetime(_) => {
                errors.push_spanned(parameter, "a tool owns its arguments: remove the lifetime");
            }
            GenericParam::Type(_) | GenericParam::Const(_) => {
                errors.push_spanned(
                    parameter,
                    "a tool cannot be generic, it has one schema: use a concrete type",
                );
            }
        }
    }
}

fn read_input(signature: &mut Signature, errors: &mut Errors) -> ToolInput {
    let is_alone = signature.inputs.len() == 1;
    let mut parameters = Vec::new();
    for input in &mut signature.inputs {
        let FnArg::Typed(input) = input else { continue };
        check_type(&input.ty, errors);
        let attributes = take_attributes(input, errors);
        match attributes.iter().find(|attribute| attribute.path().is_ident("arguments")) {
            Some(_) if is_alone => return read_whole(&input.ty, &attributes, errors),
            Some(mark) => {
                errors.push_spanned(mark, "`#[arguments]` takes all arguments: make this the only parameter");
            }
            None => {
                let ty = (*input.ty).clone();
                parameters.extend(read_name(input, errors).map(|name| ToolParameter {
                    name,
                    ty,
                    attributes,
                }));
            }
        }
    }
    ToolInput::Parameters(parameters)
}

fn read_whole(ty: &Type, attributes: &[Attribute], errors: &mut Errors) -> ToolInput {
    for attribute in attributes {
        if attribute.path().is_ident("serde") || attribute.path().is_ident("schemars") {
            errors.push_spanned(attribute, "this has no effect on `#[arguments]`: move it to the type");
        }
    }
    ToolInput::Whole(Box::new(ty.clone()))
}

/// Removes the attributes that are meant for the macro from the signature.
fn take_attributes(input: &mut PatType, errors: &mut Errors) -> Vec<Attribute> {
    let is = |attribute: &Attribute, names: &[&str]| names.iter().any(|name| attribute.path().is_ident(name));
    for attribute in &input.attrs {
        if is(attribute, &["cfg", "cfg_attr"]) {
            errors.push_spanned(
                attribute,
                "a parameter cannot be conditional: put the condition on the function",
            );
        } else if is(attribute, &["serde"]) && token_strings(attribute).iter().any(|token| token == "flatten")
        {
            errors.push_spanned(
                attribute,
                "`flatten` is not supported on a parameter: take one type, marked `#[arguments]`",
            );
        }
    }
    let (ours, theirs) = mem::take(&mut input.attrs)
        .into_iter()
        .partition(|attribute| is(attribute, &["doc", "serde", "schemars", "arguments"]));
    input.attrs = theirs;
    ours
}

fn read_name(input: &PatType, errors: &mut Errors) -> Option<Ident> {
    match &*input.pat {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Some(name.ident.clone()),
        Pat::Wild(pattern) => {
            errors.push_spanned(pattern, "a parameter needs a name: give it one, or remove it");
            None
        }
        pattern => {
            errors.push_spanned(
                pattern,
                "a parameter needs a name: give it one, and destructure it in the body",
            );
            None
        }
    }
}

fn check_type(ty: &Type, errors: &mut Errors) {
    if let Some(token) = impl_token(ty) {
        errors.push_spanned(
            token,
            "the type of an argument must be known: use a concrete type instead of `impl`",
        );
    } else if let Type::Reference(reference) = bare(ty) {
        errors.push_spanned(
            ty,
            format_args!("take {}: a tool owns its arguments", owned_form(&reference.elem)),
        );
    } else if borrows(ty) {
        errors.push_spanned(ty, "take an owned type, such as `String`: a tool owns its arguments");
    }
}

/// Returns the owned type to suggest instead of a reference to `target`.
fn owned_form(target: &Type) -> &'static str {
    match target {
        Type::Slice(_) => "a `Vec`",
        Type::Path(target) if target.path.is_ident("str") => "`String`",
        Type::Path(target) if target.path.is_ident("Path") => "`PathBuf`",
        _ => "it by value",
    }
}

fn read_output(output: &ReturnType, errors: &mut Errors) -> Option<ReturnValue> {
    let ReturnType::Type(_, ty) = output else {
        return Some(ReturnValue { ty: parse_quote!(()), error: None });
    };
    if let Some(token) = impl_token(ty) {
        errors.push_spanned(token, "the return type must be known: use a concrete type instead of `impl`");
        return None;
    }
    let ty = bare(ty);
    let last = match ty {
        Type::Path(path) => path.path.segments.last().filter(|segment| segment.ident == "Result"),
        _ => None,
    };
    let Some(result) = last else { return Some(ReturnValue { ty: ty.clone(), error: None }) };
    if let PathArguments::AngleBracketed(arguments) = &result.arguments
        && let Some(GenericArgument::Type(output)) = arguments.args.first()
    {
        let error = match arguments.args.get(1) {
            Some(GenericArgument::Type(error)) => error,
            _ => ty,
        };
        return Some(ReturnValue { ty: bare(output).clone(), error: Some(error.clone()) });
    }
    errors.push_spanned(ty, "name the output type: `Result<f64>`, or `Result<()>` for none");
    None
}

/// Strips parentheses and the invisible group around a `macro_rules!` fragment.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        other => other,
    }
}

/// Returns the first `impl` token in a type.
fn impl_token(ty: &Type) -> Option<TokenTree> {
    tokens(ty.to_token_stream()).into_iter().find(|token| token.to_string() == "impl")
}

/// Returns `true` if a type borrows.
fn borrows(ty: &Type) -> bool {
    let tokens = token_strings(ty);
    tokens.iter().any(|token| token == "&")
        || tokens.windows(2).any(|pair| pair[0] == "'" && pair[1] != "static")
}

fn token_strings(source: &impl ToTokens) -> Vec<String> {
    tokens(source.to_token_stream()).iter().map(ToString::to_string).collect()
}

/// Flattens a token stream, groups included.
fn tokens(stream: TokenStream) -> Vec<TokenTree> {
    let inside = |token| match token {
        TokenTree::Group(group) => tokens(group.stream()),
        other => vec![other],
    };
    stream.into_iter().flat_map(inside).collect()
}
