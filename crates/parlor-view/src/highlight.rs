//! Source code as tokens, for any output.
//!
//! The lexer knows comments, strings, numbers, keywords and the names that are called, for the languages that agents write most.
//! `syntect` knows far more. On two shared cores, in a release build with `fancy-regex`, it took 0.7 s for its first line of
//! TypeScript and 0.3 s for 400 lines of Rust, on the thread that draws; with the syntaxes of `two-face` it adds 3.2 MB.

/// Longer code is shown without colours from here on, so that one block costs bounded time.
pub const MAX_BYTES: usize = 1 << 20;

/// What a part of source code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// Anything else.
    Plain,
    /// A comment.
    Comment,
    /// A keyword or a tag.
    Keyword,
    /// A string or a character.
    String,
    /// A number or another constant.
    Number,
    /// The name of a type, or a key.
    Type,
    /// The name of a function.
    Function,
    /// A line that a patch adds.
    Added,
    /// A line that a patch removes.
    Removed,
}

/// What the lexer knows of a language.
#[derive(Debug)]
struct Language {
    /// Its names, file extensions and file names, in lower case.
    names: &'static str,
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static [char],
    /// The strings that may have several lines.
    long_strings: &'static [&'static str],
    keywords: &'static str,
    style: Style,
}

/// What is special about a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Names that begin with a capital are types.
    Code,
    /// `'a` is a lifetime, `x!` is called.
    Rust,
    /// Keywords in any case.
    Sql,
    /// Words are words.
    Shell,
    /// A name or a string before `:` or `=` is a key.
    Keys,
    /// Tags with attributes.
    Markup,
    /// Lines that are added and removed.
    Patch,
}

const fn code(names: &'static str, keywords: &'static str) -> Language {
    Language {
        names,
        line_comments: &["//"],
        block_comment: Some(("/*", "*/")),
        quotes: &['"', '\''],
        long_strings: &[],
        keywords,
        style: Style::Code,
    }
}

const fn hash(names: &'static str, keywords: &'static str, style: Style) -> Language {
    Language {
        names,
        line_comments: &["#"],
        block_comment: None,
        quotes: &['"', '\''],
        long_strings: &[],
        keywords,
        style,
    }
}

static LANGUAGES: &[Language] = &[
    Language {
        style: Style::Rust,
        quotes: &['"'],
        long_strings: &["\""],
        ..code(
            "rust rs ron",
            "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut \
            pub ref return self static struct super trait type union unsafe use where while yield",
        )
    },
    Language {
        quotes: &['"', '\'', '`'],
        long_strings: &["`"],
        ..code(
            "javascript js jsx mjs cjs typescript ts tsx mts cts vue svelte",
            "abstract any as async await boolean break case catch class const continue declare default delete do else enum \
            export extends finally for from function get if implements import in instanceof interface keyof let namespace \
            never new number of private protected public readonly return set static string super switch this throw try \
            type typeof unknown var void while yield",
        )
    },
    Language {
        long_strings: &["\"\"\"", "'''"],
        ..hash(
            "python py pyi python3 starlark bzl",
            "and as assert async await break case class continue def del elif else except finally for from global if import \
            in is lambda match nonlocal not or pass raise return self try while with yield",
            Style::Code,
        )
    },
    Language {
        quotes: &['"', '\'', '`'],
        long_strings: &["`"],
        ..code(
            "go golang",
            "break case chan const continue default defer else fallthrough for func go goto if import interface map package \
            range return select struct switch type var bool byte error float64 int int64 rune string uint64",
        )
    },
    code(
        "c h cpp cc cxx hpp c++ objc m mm cuda cu",
        "alignas auto bool break case catch char class const constexpr continue default delete do double else enum \
            explicit extern float for friend goto if inline int long namespace new noexcept operator override private \
            protected public return short signed sizeof static struct switch template this throw try typedef typename \
            union unsigned using virtual void volatile while",
    ),
    code(
        "java kotlin kt kts scala groovy gradle csharp cs c# dart swift proto",
        "abstract as async await base bool boolean break byte case catch char class companion const continue data def \
            default do double else enum extends extension final finally float for foreach fun func get guard if implements \
            import in init instanceof int interface internal is lazy let long match message namespace new object open out \
            override package private protected protocol public record repeated required return rpc sealed self set short \
            static string struct super suspend switch this throw throws trait try using val var virtual void when where \
            while with yield",
    ),
    code(
        "zig",
        "and break catch comptime const continue defer else enum errdefer error export extern fn for if inline or \
            orelse pub return struct switch test try union unreachable var while",
    ),
    Language {
        line_comments: &["//", "#"],
        ..code(
            "php",
            "abstract array as break case catch class const continue default echo else elseif extends final finally fn for \
            foreach function if implements interface match namespace new private protected public readonly return static \
            switch throw trait try use while",
        )
    },
    hash(
        "ruby rb rake gemfile rakefile elixir ex exs perl pl pm r julia jl",
        "alias and begin break case class cond def defmodule defp do else elsif end ensure fn for foreach function if \
            import in local module my next not or our package raise receive redo require rescue retry return self sub \
            super then unless until use using when while with yield",
        Style::Code,
    ),
    Language {
        long_strings: &["\"", "'"],
        ..hash(
            "sh bash zsh fish shell console shell-session bashrc zshrc profile env",
            "case cd do done elif else esac eval exec exit export fi for function if in local readonly return set shift \
            source then trap unset until while",
            Style::Shell,
        )
    },
    hash(
        "dockerfile containerfile makefile make mk gnumakefile justfile cmake cmakelists.txt",
        "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL RUN SHELL USER VOLUME WORKDIR AS define else \
            endef endif export ifdef ifeq ifndef ifneq include function if set foreach",
        Style::Shell,
    ),
    hash("yaml yml toml ini cfg conf properties editorconfig gitconfig lock", "", Style::Keys),
    Language { line_comments: &["//"], quotes: &['"'], ..code("json jsonc json5 jsonl", "") },
    Language {
        line_comments: &["--"],
        style: Style::Sql,
        ..code(
            "sql sqlite postgres postgresql mysql psql",
            "add all alter and as asc begin between by cascade case check column commit constraint create default delete \
            desc distinct drop else end exists foreign from full group having if in index inner insert integer into is \
            join key left like limit not offset on or order outer primary references returning right rollback select set \
            table text then transaction trigger union unique update using values view when where with",
        )
    },
    Language {
        line_comments: &["--"],
        block_comment: Some(("--[[", "]]")),
        ..code(
            "lua",
            "and break do else elseif end for function goto if in local not or repeat return then until while",
        )
    },
    Language {
        line_comments: &["--"],
        block_comment: Some(("{-", "-}")),
        quotes: &['"'],
        ..code(
            "haskell hs elm",
            "case class data deriving do else if import in instance let module newtype of then type where",
        )
    },
    Language {
        line_comments: &["#"],
        long_strings: &["''"],
        quotes: &['"'],
        ..code("nix hcl tf terraform", "assert else if in inherit let rec then with")
    },
    Language { line_comments: &[], style: Style::Keys, ..code("css scss less", "") },
    Language {
        line_comments: &[],
        block_comment: Some(("<!--", "-->")),
        style: Style::Markup,
        ..code("html htm xml svg xhtml plist", "")
    },
    Language { line_comments: &[], block_comment: None, style: Style::Patch, ..code("diff patch", "") },
];

const CONSTANTS: [&str; 10] =
    ["true", "false", "null", "nil", "None", "True", "False", "undefined", "NULL", "nullptr"];

/// The state of highlighting after the lines so far.
#[derive(Debug, Clone)]
pub struct Highlighter {
    /// `None` if the language is not known.
    language: Option<&'static Language>,
    /// The end of the comment or string that is open.
    open: Option<(&'static str, Token)>,
    bytes: usize,
}

impl Highlighter {
    /// Highlights a language by the name or file extension that a code block has.
    pub fn of_language(name: &str) -> Self {
        let name = name.split([' ', ',', '{', ':']).next().unwrap_or_default().to_ascii_lowercase();
        let language = LANGUAGES.iter().find(|language| has_word(language.names, &name));
        Self { language, open: None, bytes: 0 }
    }

    /// Highlights a file by its name.
    pub fn of_path(path: &str) -> Self {
        let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
        let of_name = Self::of_language(name.trim_start_matches('.'));
        match name.rsplit_once('.') {
            Some((_, extension)) if of_name.language.is_none() => Self::of_language(extension),
            Some(_) | None => of_name,
        }
    }

    /// The tokens of the next line, which has no line break: for each the byte at which it ends.
    pub fn line(&mut self, line: &str) -> Vec<(usize, Token)> {
        self.bytes += line.len();
        let Some(language) = self.language.filter(|_| self.bytes <= MAX_BYTES) else {
            return if line.is_empty() { Vec::new() } else { vec![(line.len(), Token::Plain)] };
        };
        let mut lexer =
            Lexer { language, line, at: 0, open: self.open, tokens: Vec::new(), is_in_tag: false };
        if language.style == Style::Patch {
            lexer.patch_line();
        } else {
            while lexer.at < line.len() {
                lexer.step();
            }
        }
        self.open = lexer.open;
        lexer.tokens
    }
}

struct Lexer<'a> {
    language: &'static Language,
    line: &'a str,
    at: usize,
    open: Option<(&'static str, Token)>,
    tokens: Vec<(usize, Token)>,
    is_in_tag: bool,
}

impl Lexer<'_> {
    fn push(&mut self, length: usize, token: Token) {
        self.at += length;
        match self.tokens.last_mut() {
            Some((end, same)) if *same == token => *end = self.at,
            Some(_) | None if length > 0 => self.tokens.push((self.at, token)),
            Some(_) | None => {}
        }
    }

    fn patch_line(&mut self) {
        let token = match self.line.as_bytes().first() {
            Some(b'+') => Token::Added,
            Some(b'-') => Token::Removed,
            Some(b'@') => Token::Function,
            Some(b'd' | b'i') => Token::Comment,
            Some(_) | None => Token::Plain,
        };
        self.push(self.line.len(), token);
    }

    fn step(&mut self) {
        let rest = &self.line[self.at..];
        if let Some((end, token)) = self.open {
            let length = end_of(rest, end, token == Token::String);
            self.open = self.open.filter(|_| length.is_none());
            return self.push(length.unwrap_or(rest.len()), token);
        }
        let language = self.language;
        if let Some((start, end)) = language.block_comment.filter(|(start, _)| rest.starts_with(start)) {
            self.open = Some((end, Token::Comment));
            return self.push(start.len(), Token::Comment);
        }
        let before = self.line[..self.at].chars().next_back();
        let is_word_start = before.is_none_or(char::is_whitespace);
        let starts_comment = |start: &&str| rest.starts_with(*start) && (*start != "#" || is_word_start);
        if language.line_comments.iter().any(starts_comment) {
            return self.push(rest.len(), Token::Comment);
        }
        let Some(first) = rest.chars().next() else { return };
        let is_string = (!matches!(language.style, Style::Markup) || self.is_in_tag)
            && (language.style != Style::Shell || before != Some('\\'));
        if is_string && let Some(length) = self.string(rest, first) {
            let is_key = (language.names.starts_with("json") || language.names.starts_with("yaml"))
                && rest[length..].trim_start().starts_with(':');
            return self.push(length, if is_key { Token::Type } else { Token::String });
        }
        if language.style == Style::Markup {
            return self.markup(rest, first);
        }
        if first.is_ascii_digit() && !before.is_some_and(is_name) {
            let is_number = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            let length = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
            return self.push(length, Token::Number);
        }
        if is_name(first) {
            let length = rest
                .find(|c| !(is_name(c) || language.style == Style::Keys && c == '-'))
                .unwrap_or(rest.len());
            return self.push(length, self.word(&rest[..length], &rest[length..]));
        }
        self.push(first.len_utf8(), Token::Plain);
    }

    /// The length of the string that begins here, up to the end of the line if it is open there.
    fn string(&mut self, rest: &str, first: char) -> Option<usize> {
        let language = self.language;
        if let Some(quote) = language.long_strings.iter().find(|quote| rest.starts_with(**quote)) {
            let end = end_of(&rest[quote.len()..], quote, true);
            self.open = end.is_none().then_some((*quote, Token::String));
            return Some(end.map_or(rest.len(), |end| quote.len() + end));
        }
        if language.style == Style::Rust && first == '\'' {
            // A character, or else a lifetime.
            let inner = &rest[1..];
            let length = if inner.starts_with('\\') {
                end_of(inner, "'", true)?
            } else {
                let length = inner.chars().next()?.len_utf8();
                inner[length..].starts_with('\'').then_some(length + 1)?
            };
            return Some(1 + length);
        }
        let quote = language.quotes.iter().find(|quote| **quote == first)?;
        let mut buffer = [0; 4];
        let end = end_of(&rest[1..], quote.encode_utf8(&mut buffer), true);
        // An apostrophe in a text of keys and values.
        if end.is_none() && language.style == Style::Keys {
            return None;
        }
        Some(end.map_or(rest.len(), |end| 1 + end))
    }

    fn markup(&mut self, rest: &str, first: char) {
        let length = first.len_utf8();
        match first {
            '<' => {
                let name = rest[1..].find(|c: char| !(c.is_alphanumeric() || "/!?-:".contains(c)));
                self.is_in_tag = true;
                self.push(1 + name.unwrap_or(rest.len() - 1), Token::Keyword);
            }
            '>' => {
                self.is_in_tag = false;
                self.push(length, Token::Keyword);
            }
            _ if self.is_in_tag && is_name(first) => {
                let length = rest.find(|c: char| !is_name(c) && c != '-' && c != ':').unwrap_or(rest.len());
                self.push(length, Token::Type);
            }
            _ => self.push(length, Token::Plain),
        }
    }

    fn word(&self, word: &str, after: &str) -> Token {
        let language = self.language;
        let is_keyword = match language.style {
            Style::Sql => has_word(language.keywords, &word.to_ascii_lowercase()),
            Style::Code | Style::Rust | Style::Shell | Style::Keys | Style::Markup | Style::Patch => {
                has_word(language.keywords, word)
            }
        };
        let is_line_start = self.line[..self.at].trim_start_matches([' ', '-', '.', '"']).is_empty();
        let next = after.trim_start();
        if is_keyword {
            Token::Keyword
        } else if CONSTANTS.contains(&word) {
            Token::Number
        } else if language.style == Style::Keys {
            let is_key = is_line_start && (next.starts_with(':') || next.starts_with('='));
            if is_key { Token::Type } else { Token::Plain }
        } else if language.style == Style::Shell {
            Token::Plain
        } else if after.starts_with('(')
            || (language.style == Style::Rust && after.starts_with('!') && !after.starts_with("!="))
        {
            Token::Function
        } else if word.starts_with(char::is_uppercase) && language.style != Style::Sql {
            Token::Type
        } else {
            Token::Plain
        }
    }
}

/// Whether a list of words has a word.
fn has_word(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The end of a string or comment, after its last character; a backslash escapes in strings.
fn end_of(text: &str, end: &str, has_escapes: bool) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find(end).map(|at| from + at) {
        let escapes = text[from..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
        if !has_escapes || escapes % 2 == 0 {
            return Some(at + end.len());
        }
        from = at + end.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(highlighter: &mut Highlighter, line: &str) -> Vec<(String, Token)> {
        let mut start = 0;
        let parts = highlighter.line(line).into_iter().map(|(end, token)| {
            let part = line[start..end].to_owned();
            start = end;
            (part, token)
        });
        parts.collect()
    }

    #[test]
    fn tokens_cover_each_line_and_the_state_carries_over() {
        let mut rust = Highlighter::of_language("rust");
        assert_eq!(
            tokens(&mut rust, "let x = 1; /* a"),
            [
                ("let".to_owned(), Token::Keyword),
                (" x = ".to_owned(), Token::Plain),
                ("1".to_owned(), Token::Number),
                ("; ".to_owned(), Token::Plain),
                ("/* a".to_owned(), Token::Comment),
            ]
        );
        assert_eq!(tokens(&mut rust, "b */ x")[0], ("b */".to_owned(), Token::Comment));
        assert_eq!(tokens(&mut rust, ""), []);
    }

    #[test]
    fn languages_are_found_by_name_extension_and_file_name() {
        for highlighter in [
            Highlighter::of_language("ts"),
            Highlighter::of_language("TOML"),
            Highlighter::of_language("rust,ignore"),
            Highlighter::of_path("/a/b.tsx"),
            Highlighter::of_path("Dockerfile"),
            Highlighter::of_path("C:\\x\\Makefile"),
        ] {
            assert!(highlighter.language.is_some());
        }
        for highlighter in
            [Highlighter::of_language(""), Highlighter::of_path("notes"), Highlighter::of_path("")]
        {
            assert!(highlighter.language.is_none());
        }
    }

    #[test]
    fn each_style_of_language_is_known() {
        for (language, line, expected) in [
            ("rust", "fn f<'a>(c: &'a str) -> Vec { x!('\\'') }", "fn|K Vec|T x|F '\\''|S"),
            ("python", "def f(x): # note", "def|K f|F # note|C"),
            ("ts", "const a: Foo = `x ${1}`", "const|K Foo|T `x ${1}`|S"),
            ("json", r#"{"a": "b", "c": true}"#, r#""a"|T "b"|S "c"|T true|N"#),
            ("toml", "name = \"x\" # y", "name|T \"x\"|S # y|C"),
            ("yaml", "- run: cargo test", "run|T"),
            ("sql", "SELECT 'a' FROM t -- x", "SELECT|K 'a'|S FROM|K -- x|C"),
            ("sh", "export A='b # c' # d", "export|K 'b # c'|S # d|C"),
            ("html", "<a href=\"x\">it's</a>", "<a|K href|T \"x\"|S >|K </a>|K"),
            ("diff", "+added", "+added|A"),
            ("c", "int x = 0x1F; /* a */ char", "int|K 0x1F|N /* a */|C char|K"),
        ] {
            let found = tokens(&mut Highlighter::of_language(language), line);
            let letter = |token| match token {
                Token::Plain => 'P',
                Token::Comment => 'C',
                Token::Keyword => 'K',
                Token::String => 'S',
                Token::Number => 'N',
                Token::Type => 'T',
                Token::Function => 'F',
                Token::Added => 'A',
                Token::Removed => 'R',
            };
            let colored: Vec<String> = found
                .iter()
                .filter(|(_, token)| *token != Token::Plain)
                .map(|(part, token)| format!("{part}|{}", letter(*token)))
                .collect();
            assert_eq!(colored.join(" "), expected, "{language}");
        }
    }

    #[test]
    fn strings_and_comments_go_on_in_the_next_line() {
        let mut python = Highlighter::of_language("python");
        assert_eq!(tokens(&mut python, "x = \"\"\"a").last().unwrap().1, Token::String);
        assert_eq!(
            tokens(&mut python, "def \"\"\"; def"),
            [
                ("def \"\"\"".to_owned(), Token::String),
                ("; ".to_owned(), Token::Plain),
                ("def".to_owned(), Token::Keyword),
            ]
        );
        let mut c = Highlighter::of_language("c");
        c.line("\"open");
        assert_eq!(c.line("int")[0].1, Token::Keyword);
    }

    #[test]
    fn long_code_has_no_colours() {
        let mut rust = Highlighter::of_language("rust");
        assert_eq!(rust.line("let")[0].1, Token::Keyword);
        rust.line(&"x".repeat(MAX_BYTES));
        assert_eq!(rust.line("let"), [(3, Token::Plain)]);
    }

    proptest::proptest! {
        #[test]
        fn tokens_end_at_characters_and_cover_the_line(lines in proptest::collection::vec("[-a1A_'\"`<>/*#=:é漢 \\\\(){}!.]{0,30}", 0..6)) {
            for language in LANGUAGES {
                let mut highlighter = Highlighter::of_language(language.names.split(' ').next().unwrap());
                for line in &lines {
                    let parts = tokens(&mut highlighter, line);
                    proptest::prop_assert_eq!(&parts.into_iter().map(|(part, _)| part).collect::<String>(), line);
                }
            }
        }
    }
}
