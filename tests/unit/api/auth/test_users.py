import pytest

from nodetracker.api.auth.users import (
    delete_user,
    hash_password,
    is_password,
    is_user_name,
    parse_user_file,
    set_user,
)

OLD, NEW = (hash_password(text, rounds=4) for text in ("old", "new"))


def test_a_new_user_is_appended():
    assert set_user("", "eve", NEW) == f"eve:{NEW}\n"
    assert set_user(f"admin:{OLD}", "eve", NEW) == f"admin:{OLD}\neve:{NEW}\n"


def test_a_changed_user_keeps_its_place_and_other_lines_are_kept():
    text = f"# ours\neve:{OLD}\nbroken\neve:{OLD}\neven:{OLD}\n"
    assert set_user(text, "eve", NEW) == f"# ours\neve:{NEW}\nbroken\neven:{OLD}\n"


def test_a_deleted_user_leaves_the_other_lines():
    assert delete_user(f"# ours\neve:{OLD}\neven:{OLD}\n", "eve") == f"# ours\neven:{OLD}\n"


def test_the_first_of_two_lines_of_a_user_counts():
    parsed = parse_user_file(f"eve:{OLD}\neve:{NEW}\n")
    assert parsed.hashes == {"eve": OLD}
    assert parsed.problems == ("line 2: duplicate user",)


@pytest.mark.parametrize("line", ["eve:", "eve:secret", ":HASH", "e ve:HASH", "HASH"])
def test_other_lines_are_problems(line):
    parsed = parse_user_file(line.replace("HASH", OLD))
    assert parsed.hashes == {}
    assert len(parsed.problems) == 1


def test_apache_s_bcrypt_hashes_are_accepted():
    assert is_password(b"old", parse_user_file("a:$2y$" + OLD[4:]).hashes["a"])


@pytest.mark.parametrize("name", ["", "a:b", "a b", "#a", "a\n", "x" * 256, "\x7f"])
def test_invalid_names(name):
    assert not is_user_name(name)


@pytest.mark.parametrize("name", ["admin", "ops@example.org", "üser", "x" * 255])
def test_valid_names(name):
    assert is_user_name(name)


@pytest.mark.parametrize(
    ("password", "problem"),
    [
        ("", "the password is empty"),
        ("x" * 73, "the password has 73 bytes: expected at most 72"),
        ("ü" * 37, "the password has 74 bytes: expected at most 72"),
        ("a\0b", "the password has a NUL"),
    ],
)
def test_passwords_that_bcrypt_cannot_hash(password, problem):
    with pytest.raises(ValueError, match=problem):
        hash_password(password)


def test_a_new_hash_costs_12():
    assert hash_password("x").startswith("$2b$12$")
